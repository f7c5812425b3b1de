//! A model preset with the way it is trained.

use std::path::Path;

use emberlm_model::{DecoderConfig, families};

use crate::run_config::RunConfigError;
use crate::{DataConfig, RunConfig, TrainConfig};

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
            learning_rate: 3e-5,
            min_learning_rate: 3e-5,
            warmup_steps: 0,
            beta2: 0.95,
            eval_interval: 25,
            eval_tokens: 65_536,
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
            learning_rate: 5e-3,
            min_learning_rate: 2e-4,
            warmup_steps: 40,
            eval_interval: 100,
            eval_tokens: 16_384,
            checkpoint_interval: 500,
            sample_tokens: 420,
            ..TrainConfig::default()
        },
        "pocket" => TrainConfig {
            steps: 10_000,
            micro_batch: 4,
            accumulation: 8,
            learning_rate: 1e-3,
            min_learning_rate: 1e-4,
            warmup_steps: 200,
            beta2: 0.95,
            eval_interval: 500,
            eval_tokens: 262_144,
            ..TrainConfig::default()
        },
        // nanoGPT's settings for its characters on a CPU.
        "char-nano" => TrainConfig::default(),
        // nanoGPT's settings for GPT-2.
        _ => TrainConfig {
            steps: 600_000,
            micro_batch: 12,
            accumulation: 40,
            learning_rate: 6e-4,
            min_learning_rate: 6e-5,
            warmup_steps: 2000,
            beta2: 0.95,
            eval_interval: 1000,
            eval_tokens: 2_457_600,
            ..TrainConfig::default()
        },
    }
}
