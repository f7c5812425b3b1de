//! `--depth N`: a preset with another number of blocks, and all that follows from it.
//!
//! With `r` the parameters of the blocks' linear layers over those of the preset, near `(N / n)³` for a preset of `n` blocks:
//!
//! | setting | rule |
//! |---|---|
//! | width | the preset's ratio of width to blocks, in whole heads of the preset's width |
//! | tokens of the run | `r` times the preset's (Hoffmann et al. 2022: tokens in proportion to parameters) |
//! | sequences of a step | `√r` times the preset's (Zhang et al. 2024: the critical batch grows as the root of the tokens) |
//! | learning rate | `√b` times the preset's for a batch of `b` times the sequences (Malladi et al. 2022), and by width and depth as `complete_p` |
//! | weight decay | the preset's product of rate, decay and steps (Wang and Aitchison 2024) |
//! | warm-up, ends of schedules, intervals of evaluations and checkpoints | the preset's shares of the steps |
//!
//! At the preset's own number of blocks nothing changes.

use emberlm_model::{ModelConfig, ModelKind};

use super::shrunk::parameters;
use super::sized::{WIDTH_STEP, sized};
use crate::config::check::require;
use crate::config::{CompletePConfig, ParametrizationConfig, RunConfig};
use crate::error::TrainError;

/// The run `preset` with `depth` blocks.
///
/// # Errors
/// The model is no decoder, or its configuration is invalid.
pub fn of_depth(preset: &RunConfig, depth: usize) -> Result<RunConfig, TrainError> {
    let base = &preset.model;
    if depth == base.n_layers {
        return Ok(preset.clone());
    }
    let kind = base.kind();
    let rule = "must be a decoder: --depth has rules for no other model";
    require(
        "model",
        "architecture",
        kind.name(),
        kind == ModelKind::Decoder,
        rule,
    )?;
    let mut model = deepened(base, depth);
    // That of a published model is not for other data.
    model.vocab_size = None;
    let (Some(of_base), Some(of_model)) = (parameters(base), parameters(&model)) else {
        // The check of the configuration says what is wrong with it.
        return Ok(RunConfig {
            model,
            ..preset.clone()
        });
    };
    let mut run = preset.clone();
    let growth = of_model as f64 / of_base as f64;
    let train = &mut run.train;
    if train.parametrization.is_standard() {
        train.parametrization = ParametrizationConfig::CompleteP(CompletePConfig {
            base_width: base.d_model,
            base_layers: base.n_layers,
            ..CompletePConfig::default()
        });
    }
    let sequences = preset.train.step_sequences() as f64;
    let wanted = sequences * growth.sqrt();
    let whole = |number: f64| (number.round() as usize).max(1);
    train.accumulation = whole(wanted / train.micro_batch.max(1) as f64);
    train.micro_batch = whole(wanted / train.accumulation as f64);
    let batch = train.step_sequences() as f64 / sequences;
    let length = growth / batch;
    let stretched = |steps: usize| match steps {
        0 => 0,
        steps => whole(steps as f64 * length),
    };
    train.steps = stretched(train.steps);
    train.schedule.stretch(stretched);
    train.evaluation.interval = stretched(train.evaluation.interval);
    train.checkpoints.interval = stretched(train.checkpoints.interval);
    let rate = batch.sqrt();
    train
        .schedule
        .set_learning_rate(rate * train.schedule.learning_rate());
    *train.optimizer.weight_decay_mut() /= rate * length;
    run.model = model;
    Ok(run)
}

/// The model with `depth` blocks and the width of whole heads that keeps the ratio of width to blocks best.
fn deepened(base: &ModelConfig, depth: usize) -> ModelConfig {
    let unit = match base.head_dim {
        Some(_) => WIDTH_STEP,
        None => (base.d_model / base.heads.max(1)).max(1),
    };
    let wanted = (base.d_model * depth) as f64 / base.n_layers.max(1) as f64;
    let units = (wanted / unit as f64).round().max(1.0) as usize;
    sized(base, units * unit, depth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TrainConfig;
    use crate::config::{OptimizerConfig, presets};

    fn run(preset: &str, depth: usize) -> RunConfig {
        of_depth(&presets::run(preset).expect("a preset"), depth).expect("a decoder")
    }

    fn weight_decay(mut optimizer: OptimizerConfig) -> f64 {
        *optimizer.weight_decay_mut()
    }

    #[test]
    fn the_depth_of_a_preset_is_the_preset() {
        for preset in ["char-fast", "char-nano", "llama-nano", "gpt2"] {
            let own = presets::run(preset).expect("a preset");
            let depth = own.model.n_layers;
            assert_eq!(of_depth(&own, depth).expect("a decoder"), own, "{preset}");
        }
    }

    /// Twice the blocks: eight times the parameters and tokens, in `√8` times the batch.
    #[test]
    fn twice_the_blocks_follow_the_rules() {
        let (base, deep) = (run("char-fast", 4), run("char-fast", 8));
        let model = &deep.model;
        assert_eq!((model.d_model, model.n_layers, model.heads), (256, 8, 8));
        let (before, after) = (&base.train, &deep.train);
        assert_eq!((after.micro_batch, after.accumulation), (11, 3));
        let tokens = |train: &TrainConfig| (train.steps as u64 * train.step_sequences()) as f64;
        let growth = tokens(after) / tokens(before);
        assert!((growth - 8.0).abs() < 0.05, "{growth}");
        let rate = |train: &TrainConfig| train.schedule.learning_rate();
        let ratio = rate(after) / rate(before);
        assert!((ratio - (33.0 / 12.0_f64).sqrt()).abs() < 1e-12, "{ratio}");
        let decayed = |train: &TrainConfig| {
            rate(train) * train.steps as f64 * weight_decay(train.optimizer.clone())
        };
        let ratio = decayed(after) / decayed(before);
        assert!((ratio - 1.0).abs() < 2e-3, "{ratio}");
        let warmup =
            |train: &TrainConfig| train.schedule.warmup_steps() as f64 / train.steps as f64;
        assert!((warmup(after) - warmup(before)).abs() < 1e-3);
        let expected = ParametrizationConfig::CompleteP(CompletePConfig {
            base_width: 128,
            base_head_dim: 0,
            base_layers: 4,
        });
        assert_eq!(after.parametrization, expected);
    }

    #[test]
    fn every_depth_of_every_decoder_is_a_valid_run() {
        for preset in presets::all() {
            let own = presets::run(preset.name).expect("a preset");
            if own.model.kind() != ModelKind::Decoder {
                let error = of_depth(&own, 3).expect_err("refused").to_string();
                assert!(error.contains("must be a decoder"), "{error}");
                continue;
            }
            for depth in [1, 2, 3, 7, 12, 20] {
                let name = preset.name;
                let run = of_depth(&own, depth).expect("a decoder");
                run.train
                    .check()
                    .unwrap_or_else(|e| panic!("{name} {depth}: {e}"));
                let model = run.train.parametrization.applied(&run.model);
                let model = emberlm_model::TransformerConfig::try_from(model.with_any_vocabulary());
                model.unwrap_or_else(|e| panic!("{name} {depth}: {e}"));
            }
        }
    }
}
