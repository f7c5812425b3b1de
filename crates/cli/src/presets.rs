//! A model preset with the way it is trained.

use std::path::Path;

use emberlm_model::{DecoderConfig, families};
use emberlm_trainer::{DataConfig, RunConfig, TrainConfig};

use crate::error::CliError;

/// What `train` takes where nothing is said: it learns the built-in tales.
pub const DEFAULT: &str = "pocket-tales";

/// The run of a preset's name, its dataset still open.
///
/// # Errors
/// There is no such preset.
pub fn run(name: &str) -> Result<RunConfig, CliError> {
    let Some(preset) = families::preset(name) else {
        let names: Vec<_> = families::presets().iter().map(|p| p.name).collect();
        return Err(CliError::usage(format!("unknown preset `{name}`"))
            .hint(format!("choose one of {}", names.join(", "))));
    };
    Ok(RunConfig {
        model: preset.config,
        data: DataConfig::default(),
        train: training(name),
    })
}

/// The run of a model that has weights already: nanoGPT's settings for going on from GPT-2, a small and constant rate.
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
