//! A model preset with the way it is trained.

use std::path::Path;

use emberlm_model::{DecoderConfig, families};

use crate::config::{AdamWConfig, CheckpointConfig, DecayConfig, EvaluationConfig};
use crate::run_config::RunConfigError;
use crate::{DataConfig, OptimizerConfig, RunConfig, ScheduleConfig, TrainConfig};

/// The preset of `emberlm train` without `--preset`: it learns the built-in tales.
pub const DEFAULT: &str = "pocket-tales";

/// The run of the preset `name`, without a dataset.
///
/// # Errors
/// There is no such preset.
pub fn run(name: &str) -> Result<RunConfig, RunConfigError> {
    let Some(preset) = families::preset(name) else {
        return Err(RunConfigError::UnknownPreset {
            name: name.to_owned(),
        });
    };
    Ok(RunConfig {
        model: preset.config,
        data: DataConfig::default(),
        train: training(name),
    })
}

/// The run that fine-tunes a model: nanoGPT's settings for GPT-2, with a small and constant learning rate.
pub fn fine_tuning(model: &DecoderConfig, from: &Path) -> RunConfig {
    RunConfig {
        model: model.raw(),
        data: DataConfig::default(),
        train: TrainConfig {
            from: from.to_owned(),
            seq_len: if model.seq_len > 1024 { 1024 } else { 0 },
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

/// How a preset is trained.
fn training(name: &str) -> TrainConfig {
    match name {
        // About two minutes on two CPU cores.
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
        "pocket" => TrainConfig {
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
        // nanoGPT's settings for its characters on a CPU.
        "char-nano" => TrainConfig::default(),
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

/// A cosine schedule with its warm-up.
fn cosine(learning_rate: f64, min_learning_rate: f64, warmup_steps: usize) -> ScheduleConfig {
    ScheduleConfig::Cosine(DecayConfig {
        learning_rate,
        min_learning_rate,
        warmup_steps,
        ..DecayConfig::default()
    })
}

/// AdamW with nanoGPT's decay of the second moment for GPT-2.
fn gpt2_adamw() -> OptimizerConfig {
    OptimizerConfig::AdamW(AdamWConfig {
        beta2: 0.95,
        ..AdamWConfig::default()
    })
}
