//! Presets: a model with its training settings.

use std::path::Path;

use emberlm_data::Packing;
use emberlm_model::TransformerConfig;
use emberlm_model::families::{self, Preset};

use crate::config::epochs;
use crate::config::run_config::RunConfigError;
use crate::config::{
    AdamWConfig, CheckpointConfig, CompletePConfig, DecayConfig, EvaluationConfig, OptimizerKind,
    ParametrizationConfig,
};

mod depth;
mod objectives;
mod shrunk;
mod sized;

pub use depth::of_depth;
pub use shrunk::shrunk;
pub use sized::{WIDTH_STEP, sized};

pub use objectives::{fine_tuning_other, fine_tuning_preferences};

use crate::{DataConfig, OptimizerConfig, RunConfig, ScheduleConfig, TrainConfig};

/// The default preset of `emberlm train`, for the built-in tales.
pub const DEFAULT: &str = "pocket-tales";

/// The preset whose training settings models of some million parameters have.
const SMALL: &str = "pocket";

/// The models of all presets.
pub fn all() -> impl Iterator<Item = Preset> {
    let others = objectives::PRESETS.into_iter();
    let others = others.filter_map(|(name, about)| {
        let config = objectives::preset(name)?.model;
        Some(Preset {
            name,
            about,
            config,
        })
    });
    families::presets().into_iter().chain(others)
}

/// The configuration of the preset `name`, in upper or lower case, without a dataset.
///
/// # Errors
/// There is no preset of this name.
pub fn run(name: &str) -> Result<RunConfig, RunConfigError> {
    let name = &name.to_lowercase();
    if let Some(config) = objectives::preset(name) {
        return Ok(config);
    }
    let Some(preset) = families::preset(name) else {
        return Err(RunConfigError::UnknownPreset {
            name: name.to_owned(),
        });
    };
    let mut model = preset.config;
    model.dropout = dropout(name);
    Ok(RunConfig {
        model,
        data: DataConfig::default(),
        train: training(name),
    })
}

/// The dropout that a preset trains with. The models of presets have none.
fn dropout(name: &str) -> f64 {
    match name {
        "char-small" => 0.2,
        _ => 0.0,
    }
}

/// The default configuration for fine-tuning: nanoGPT's settings for GPT-2 with a small, constant learning
/// rate.
pub fn fine_tuning(model: &TransformerConfig, from: &Path) -> RunConfig {
    RunConfig {
        model: model.raw(),
        data: DataConfig::default(),
        train: TrainConfig {
            from: from.to_owned(),
            seq_len: if model.seq_len() > 1024 { 1024 } else { 0 },
            steps: 100,
            micro_batch: 1,
            accumulation: 32,
            schedule: cosine(3e-5, 3e-5, 0),
            optimizer: gpt2_adamw(),
            evaluation: EvaluationConfig {
                interval: 25,
                tokens: 65_536,
                ..EvaluationConfig::default()
            },
            ..TrainConfig::default()
        },
    }
}

/// [`fine_tuning`] adapted to `records` conversations: TRL's batch of 8, which is reduced until an epoch has `EPOCH_UPDATES`
/// updates, for `EPOCHS` epochs, but at most `MOST_STEPS` steps. `given` is as in [`fine_tuning_on`].
pub fn fine_tuning_conversations(
    model: &TransformerConfig,
    from: &Path,
    records: usize,
    given: &TrainConfig,
) -> RunConfig {
    let mut run = fine_tuning(model, from);
    let train = &mut run.train;
    if given.adapter.is_some() {
        train.schedule = cosine(ADAPTER_RATE, ADAPTER_RATE, 0);
    }
    if given.accumulation == train.accumulation {
        let fitting = records / (EPOCH_UPDATES as usize * given.micro_batch).max(1);
        train.accumulation = fitting.clamp(1, (8 / given.micro_batch.max(1)).max(1));
    } else {
        train.accumulation = given.accumulation;
    }
    let batch = (train.accumulation * given.micro_batch) as u64;
    train.steps = epochs::steps(EPOCHS, records as u64, batch).min(MOST_STEPS);
    train.evaluation.interval = (train.steps / 4).max(1);
    run
}

/// [`fine_tuning`] adapted to a training split of `tokens` tokens. With stream packing, sequences are
/// shortened until the split has `EPOCH_SEQUENCES` of them. The batch is reduced until an epoch has
/// `EPOCH_UPDATES` updates. The run lasts `EPOCHS` epochs, but at most `MOST_STEPS` steps.
///
/// `given` is [`fine_tuning`] with the user's settings. Its sequence length, micro-batch size, accumulation
/// and packing are respected.
pub fn fine_tuning_on(
    model: &TransformerConfig,
    from: &Path,
    tokens: u64,
    given: &TrainConfig,
) -> RunConfig {
    let mut run = fine_tuning(model, from);
    let train = &mut run.train;
    if given.adapter.is_some() {
        train.schedule = cosine(ADAPTER_RATE, ADAPTER_RATE, 0);
    }
    let mut seq_len = match given.seq_len {
        0 => model.seq_len(),
        tokens => tokens,
    };
    if given.seq_len == train.seq_len && given.documents == Packing::Stream {
        while seq_len > SHORTEST && tokens < EPOCH_SEQUENCES * seq_len as u64 {
            seq_len /= 2;
        }
        train.seq_len = if seq_len == model.seq_len() {
            0
        } else {
            seq_len
        };
    }
    let micro_batch_tokens = (given.micro_batch * seq_len) as u64;
    let accumulation = match given.accumulation {
        set if set != train.accumulation => set,
        most => {
            let fitting = tokens / (EPOCH_UPDATES * micro_batch_tokens).max(1);
            (fitting as usize).clamp(1, most)
        }
    };
    train.accumulation = accumulation;
    let step_tokens = accumulation as u64 * micro_batch_tokens;
    train.steps = epochs::steps(EPOCHS, tokens, step_tokens).min(MOST_STEPS);
    train.evaluation.interval = (train.steps / 4).max(1);
    run
}

/// The learning rate of adapters. Their update of a weight is a product of two small factors.
const ADAPTER_RATE: f64 = 2e-4;
/// Epochs of [`fine_tuning_on`].
const EPOCHS: f64 = 3.0;
/// The most steps of [`fine_tuning_on`].
const MOST_STEPS: usize = 100;
/// The least number of updates per epoch, unless the batch is minimal.
const EPOCH_UPDATES: u64 = 8;
/// The least number of sequences per epoch, unless sequences have the shortest length.
const EPOCH_SEQUENCES: u64 = 8;
/// The shortest sequence length that is chosen automatically.
const SHORTEST: usize = 64;

/// The suggested preset for a training split of `tokens` tokens with a vocabulary of `vocab_size`, on a
/// machine with `threads` CPU threads and no GPU. It trains in minutes to an hour, or in hours on many
/// threads.
pub fn suggested(vocab_size: usize, tokens: u64, threads: usize) -> &'static str {
    match vocab_size {
        0..=512 => "char-nano",
        _ if threads < MANY_THREADS || tokens < MANY_TOKENS => "bpe-nano",
        _ => SMALL,
    }
}

/// From this number of threads on, a model of tens of millions of parameters trains within hours.
const MANY_THREADS: usize = 16;
/// With fewer tokens, a model of tens of millions of parameters would memorize its data.
const MANY_TOKENS: u64 = 10_000_000;

/// The training settings of a preset.
fn training(name: &str) -> TrainConfig {
    match name {
        // Half a minute on two CPU cores.
        "pocket-tales" => TrainConfig {
            steps: 1000,
            micro_batch: 4,
            schedule: cosine(5e-3, 2e-4, 40),
            evaluation: EvaluationConfig {
                interval: 100,
                tokens: 16_384,
                sample_tokens: 420,
                ..EvaluationConfig::default()
            },
            checkpoints: CheckpointConfig {
                interval: 500,
                ..CheckpointConfig::default()
            },
            ..TrainConfig::default()
        },
        SMALL => TrainConfig {
            steps: 10_000,
            micro_batch: 4,
            accumulation: 8,
            schedule: cosine(1e-3, 1e-4, 200),
            optimizer: gpt2_adamw(),
            evaluation: EvaluationConfig {
                interval: 500,
                tokens: 262_144,
                ..EvaluationConfig::default()
            },
            ..TrainConfig::default()
        },
        // nanoGPT's settings for character-level models on a CPU.
        "char-nano" | "bpe-nano" | "llama-nano" => TrainConfig::default(),
        "char-fast" => TrainConfig {
            steps: 250,
            evaluation: EvaluationConfig {
                interval: 100,
                ..EvaluationConfig::default()
            },
            ..fast(1e-2)
        },
        "bpe-fast" => fast(2e-2),
        "pocket-fast" | "gpt2-fast" => TrainConfig {
            parametrization: ParametrizationConfig::CompleteP(CompletePConfig {
                base_width: 128,
                base_layers: 4,
                ..CompletePConfig::default()
            }),
            schedule: fast(2e-2).schedule,
            optimizer: fast(2e-2).optimizer,
            ..training(SMALL)
        },
        // nanoGPT's settings for character-level models on a GPU.
        "char-small" => TrainConfig {
            steps: 5000,
            micro_batch: 64,
            ..TrainConfig::default()
        },
        // nanoGPT's settings for GPT-2.
        _ => TrainConfig {
            steps: 600_000,
            micro_batch: 12,
            accumulation: 40,
            schedule: cosine(6e-4, 6e-5, 2000),
            optimizer: gpt2_adamw(),
            evaluation: EvaluationConfig {
                interval: 1000,
                tokens: 2_457_600,
                ..EvaluationConfig::default()
            },
            ..TrainConfig::default()
        },
    }
}

/// Muon with a linear schedule.
fn fast(learning_rate: f64) -> TrainConfig {
    TrainConfig {
        steps: 500,
        schedule: ScheduleConfig::Linear(DecayConfig {
            learning_rate,
            min_learning_rate: 0.0,
            warmup_steps: 20,
            ..DecayConfig::default()
        }),
        optimizer: OptimizerKind::Muon.into(),
        ..TrainConfig::default()
    }
}

/// A cosine schedule with linear warm-up.
fn cosine(learning_rate: f64, min_learning_rate: f64, warmup_steps: usize) -> ScheduleConfig {
    ScheduleConfig::Cosine(DecayConfig {
        learning_rate,
        min_learning_rate,
        warmup_steps,
        ..DecayConfig::default()
    })
}

/// AdamW with nanoGPT's `beta2` for GPT-2.
fn gpt2_adamw() -> OptimizerConfig {
    OptimizerConfig::AdamW(AdamWConfig {
        beta2: 0.95,
        ..AdamWConfig::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fine_tuned(tokens: u64, change: impl FnOnce(&mut TrainConfig)) -> TrainConfig {
        let mut raw = families::preset("gpt2").expect("a preset").config;
        raw.n_layers = 1;
        let model = TransformerConfig::try_from(raw).expect("a model");
        let mut given = fine_tuning(&model, Path::new("gpt2")).train;
        change(&mut given);
        fine_tuning_on(&model, Path::new("gpt2"), tokens, &given).train
    }

    #[test]
    fn fine_tuning_runs_three_epochs_with_a_fitting_batch() {
        let small = fine_tuned(2645, |_| {});
        assert_eq!(
            (small.seq_len, small.accumulation, small.steps),
            (256, 1, 31)
        );
        assert_eq!(small.evaluation.interval, 7);
        let middle = fine_tuned(301_966, |_| {});
        assert_eq!(
            (middle.seq_len, middle.accumulation, middle.steps),
            (0, 32, 28)
        );
        let large = fine_tuned(1 << 40, |_| {});
        assert_eq!(
            (large.seq_len, large.accumulation, large.steps),
            (0, 32, 100)
        );
    }

    #[test]
    fn fine_tuning_on_conversations_runs_three_epochs() {
        let mut raw = families::preset("gpt2").expect("a preset").config;
        raw.n_layers = 1;
        let model = TransformerConfig::try_from(raw).expect("a model");
        let from = Path::new("gpt2");
        let given = fine_tuning(&model, from).train;
        let steps = |records, given: &TrainConfig| {
            let train = fine_tuning_conversations(&model, from, records, given).train;
            (train.accumulation, train.steps)
        };
        assert_eq!(steps(5, &given), (1, 15));
        assert_eq!(steps(100, &given), (8, 38));
        assert_eq!(steps(1 << 20, &given), (8, 100));
        let set = TrainConfig {
            micro_batch: 2,
            accumulation: 3,
            ..given
        };
        assert_eq!(steps(60, &set), (3, 30));
    }

    #[test]
    fn fine_tuning_respects_given_settings() {
        let given = fine_tuned(2645, |train| (train.seq_len, train.micro_batch) = (128, 4));
        assert_eq!((given.accumulation, given.steps), (1, 16));
        let whole = fine_tuned(2645, |train| train.documents = Packing::Isolated);
        assert_eq!((whole.seq_len, whole.steps), (0, 8));
    }

    #[test]
    fn names_of_presets_ignore_case() {
        let lower = run("llama-nano").expect("a preset");
        assert_eq!(run("LLaMA-Nano").expect("a preset"), lower);
        assert_eq!(lower.train, TrainConfig::default());
    }

    #[test]
    fn char_small_has_the_settings_of_nanogpt() {
        let RunConfig { model, train, .. } = run("char-small").expect("a preset");
        let sizes = (model.n_layers, model.heads, model.d_model, model.seq_len);
        assert_eq!((sizes, model.dropout), ((6, 6, 384, 256), 0.2));
        assert_eq!(
            (train.steps, train.micro_batch, train.accumulation),
            (5000, 64, 1)
        );
        assert_eq!((train.clip_norm, train.evaluation.interval), (1.0, 250));
        let ScheduleConfig::Cosine(schedule) = train.schedule else {
            panic!("{:?}", train.schedule);
        };
        assert_eq!(schedule.learning_rate, 1e-3);
        assert_eq!(
            (schedule.min_learning_rate, schedule.warmup_steps),
            (1e-4, 100)
        );
        let OptimizerConfig::AdamW(optimizer) = train.optimizer else {
            panic!("{:?}", train.optimizer);
        };
        let betas = (optimizer.beta1, optimizer.beta2);
        assert_eq!((betas, optimizer.weight_decay), ((0.9, 0.99), 0.1));
    }

    #[test]
    fn suggested_presets_support_the_vocabulary() {
        for (vocab_size, tokens, threads, preset) in [
            (65, 1_000_000, 2, "char-nano"),
            (257, 1 << 40, 64, "char-nano"),
            (1000, 1 << 40, 2, "bpe-nano"),
            (50_257, 1 << 40, 2, "bpe-nano"),
            (50_257, 20_000, 64, "bpe-nano"),
            (50_257, 1 << 40, 64, "pocket"),
        ] {
            assert_eq!(suggested(vocab_size, tokens, threads), preset);
            assert!(families::preset(preset).is_some());
        }
    }
}
