//! Presets of published models with smaller sizes.

use emberlm_model::{ModelConfig, TransformerConfig, count};

use super::{SMALL, training};
use crate::config::{RunConfig, TrainConfig};

/// Up to this number of parameters of the blocks' linear layers, a model has the training settings of `char-nano`.
const NANO: usize = 8_000_000;
/// Up to this number, it has those of `pocket`.
const POCKET: usize = 40_000_000;
/// Tokens of a micro-batch of `char-nano`'s settings, at most: 12 sequences of 1,024 tokens.
const NANO_TOKENS: usize = 12_288;
/// Tokens of a micro-batch, and of a step, of `pocket`.
const POCKET_TOKENS: (usize, usize) = (1024, 8192);

/// The preset `base` for a model that `given`, the preset with the user's settings, made smaller: its vocabulary is the
/// dataset's, and its training settings are those of a preset of its size. `None` if the model is not smaller, or if the
/// preset's vocabulary is the dataset's anyway.
pub fn shrunk(base: &RunConfig, given: &RunConfig) -> Option<RunConfig> {
    let (published, model) = (base.decoder().ok()?, given.decoder().ok()?);
    published.vocab_size?;
    let parameters = parameters(model)?;
    if parameters >= self::parameters(published)? {
        return None;
    }
    let mut run = base.clone();
    run.model.vocab_size = None;
    let seq_len = match given.train.seq_len {
        0 => model.seq_len,
        tokens => tokens,
    };
    if let Some(train) = training_of_size(parameters, seq_len) {
        run.train = TrainConfig {
            objective: run.train.objective,
            ..train
        };
    }
    Some(run)
}

/// The number of parameters of the blocks' linear layers; `None` if the configuration is invalid.
pub(super) fn parameters(model: &ModelConfig) -> Option<usize> {
    let model = ModelConfig {
        vocab_size: Some(1),
        ..model.clone()
    };
    let model = TransformerConfig::try_from(model).ok()?;
    let parameters = count::parameters(&model);
    Some(parameters.attention.saturating_add(parameters.feed_forward))
}

/// The training settings of a small model; `None` for a large one.
fn training_of_size(parameters: usize, seq_len: usize) -> Option<TrainConfig> {
    let seq_len = seq_len.max(1);
    match parameters {
        0..=NANO => {
            let train = training("char-nano");
            let micro_batch = (NANO_TOKENS / seq_len).clamp(1, train.micro_batch);
            Some(TrainConfig {
                micro_batch,
                ..train
            })
        }
        n if n <= POCKET => {
            let train = training(SMALL);
            let (micro, step) = POCKET_TOKENS;
            let micro_batch = (micro / seq_len).clamp(1, train.micro_batch);
            let accumulation = (step / (micro_batch * seq_len)).max(1);
            Some(TrainConfig {
                micro_batch,
                accumulation,
                ..train
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::presets;
    use crate::config::run_config::layered;

    fn set(preset: &str, settings: &[&str]) -> Option<RunConfig> {
        let base = presets::run(preset).expect("a preset");
        let settings: Vec<String> = settings.iter().map(|&s| s.to_owned()).collect();
        let given = layered(base.clone(), None, &settings).expect("legal");
        let base = shrunk(&base, &given)?;
        Some(layered(base, None, &settings).expect("legal"))
    }

    const TINY: [&str; 5] = [
        "model.n_layers=2",
        "model.d_model=64",
        "model.heads=4",
        "model.kv_heads=2",
        "model.seq_len=64",
    ];

    #[test]
    fn a_shrunk_preset_has_the_vocabulary_of_the_dataset_and_the_batch_of_its_size() {
        let tiny = set("llama-3-8b", &TINY).expect("smaller");
        assert_eq!(tiny.model.vocab_size, None);
        let batch = (tiny.train.micro_batch, tiny.train.accumulation);
        assert_eq!(batch, (12, 1));
        assert_eq!(tiny.train.steps, 2000);
        // A context of 8,192 tokens.
        let long = set("llama-3-8b", &TINY[..4]).expect("smaller");
        assert_eq!((long.train.micro_batch, long.train.accumulation), (1, 1));
        let middle = set("gpt2", &["model.n_layers=4", "model.seq_len=256"]).expect("smaller");
        assert_eq!(
            (middle.train.micro_batch, middle.train.accumulation),
            (4, 8)
        );
    }

    #[test]
    fn given_settings_are_kept() {
        let own = [
            "model.vocab_size=70000",
            "train.micro_batch=3",
            "train.accumulation=40",
        ];
        let tiny = set("llama-3-8b", &[&TINY[..], &own].concat()).expect("smaller");
        let vocab_size = tiny.model.vocab_size;
        assert_eq!(vocab_size, Some(70_000));
        assert_eq!((tiny.train.micro_batch, tiny.train.accumulation), (3, 40));
    }

    #[test]
    fn other_presets_keep_their_settings() {
        assert_eq!(set("llama-3-8b", &["model.dropout=0.1"]), None);
        assert_eq!(set("gpt2", &["model.n_layers=13"]), None);
        assert_eq!(set("gpt2", &["model.seq_len=256"]), None);
        assert_eq!(set("char-nano", &["model.n_layers=1"]), None);
        let large = set("gpt2", &["model.n_layers=11"]).expect("smaller");
        assert_eq!(
            (large.train.micro_batch, large.train.accumulation),
            (12, 40)
        );
        assert_eq!(large.model.vocab_size, None);
    }
}
