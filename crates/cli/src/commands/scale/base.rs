//! The configuration that all runs of a study share.

use std::path::Path;

use emberlm_model::ModelConfig;
use emberlm_trainer::run::resolve_model;
use emberlm_trainer::{DataConfig, RunConfig, TrainConfig, TrainingData};
use toml::Value;

use super::sizes::Size;
use crate::built_in_tales;
use crate::commands::sweep::{self, Settings, SweepFile};
use crate::commands::train::{self, TrainArgs};
use crate::error::CliError;

/// The shared configuration of a study, resolved.
pub struct Base {
    pub model: ModelConfig,
    pub train: TrainConfig,
    /// Tokens of a step.
    pub step_tokens: f64,
    /// Tokens of the training split.
    pub data_tokens: f64,
    /// Tokens of an evaluation.
    pub evaluation_tokens: f64,
}

impl Base {
    /// Resolves the configuration of a sweep file without the settings of its runs. Writes the built-in tales if they are the
    /// data and do not exist.
    ///
    /// # Errors
    /// Returns an error if the configuration is invalid, is not that of a decoder on tokens, or the data cannot be opened.
    pub fn of(file: &SweepFile) -> Result<Self, CliError> {
        let words = sweep::arguments(file, &Settings::new(), Path::new("scale"), &[]);
        let mut config = train::configuration(&TrainArgs::parse(&words)?, None)?;
        check(&config)?;
        if config.data.is_empty() {
            config.data = DataConfig::of(built_in_tales::dataset("emberlm scale")?);
        }
        config.check()?;
        let data = TrainingData::open(&config.data)?;
        let model = resolve_model(&mut config, data.first())?;
        let sequence = config.train.sequence_tokens(model.seq_len())?;
        let validation = data
            .first()
            .manifest()
            .split(emberlm_data::Split::Val)
            .tokens;
        let evaluation_tokens = match config.train.evaluation.tokens {
            0 => validation,
            tokens => tokens.min(validation),
        };
        // The sizes that follow from the width stay open.
        let sized = ModelConfig {
            vocab_size: Some(model.vocab_size()),
            ..config.model
        };
        Ok(Self {
            model: sized,
            step_tokens: config.train.step_sequences() as f64 * sequence as f64,
            data_tokens: data.train_tokens() as f64,
            evaluation_tokens: evaluation_tokens as f64,
            train: config.train,
        })
    }

    /// The whole number of steps, at least 1, whose tokens are nearest to `tokens`.
    pub fn steps(&self, tokens: f64) -> usize {
        (tokens / self.step_tokens).round().max(1.0) as usize
    }

    /// The settings of a run: the size, the steps, and a warm-up of at most a tenth of the steps.
    pub fn settings(&self, size: &Size, steps: usize) -> Settings {
        let warmup = self.train.schedule.warmup_steps().min(steps / 10);
        let number = |key: &str, value: usize| {
            (
                key.to_owned(),
                Value::Integer(i64::try_from(value).unwrap_or(i64::MAX)),
            )
        };
        let mut settings = size.settings.clone();
        settings.push(number("train.steps", steps));
        settings.push(number("train.schedule.warmup_steps", warmup.max(1)));
        settings
    }
}

fn check(config: &RunConfig) -> Result<(), CliError> {
    if config.model.architecture.is_decoder() && !config.reads_records() {
        return Ok(());
    }
    Err(
        CliError::usage("scaling laws are those of decoders that predict the next token")
            .hint("choose the preset of a decoder; `emberlm info` lists them"),
    )
}
