//! `emberlm fit-step`: runs training steps in a child process and measures their peak memory.

use std::path::PathBuf;

use burn::tensor::Device;
use clap::Args;
use emberlm_kernels::TrainingBackend;
use emberlm_model::TransformerConfig;
use emberlm_trainer::bench::{Measured, measure_peak};
use emberlm_trainer::{TrainConfig, TrainError};
use emberlm_trainer::{presets, run_config};

use crate::backend::{BackendArg, Job};
use crate::error::CliError;

/// Arguments of `fit-step`.
#[derive(Debug, Args)]
pub struct FitStepArgs {
    /// The resolved configuration
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// The number of ranks of which one is measured
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub ranks: usize,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// Runs the command.
///
/// # Errors
/// Returns an error if the configuration is invalid or the backend is unavailable.
pub fn run(args: FitStepArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let config = run_config::layered(presets::run(presets::DEFAULT)?, Some(&args.config), &[])?;
    config.train.check()?;
    let model = TransformerConfig::try_from(config.model)?;
    let measured = backend.run(Steps {
        model,
        train: config.train,
        ranks: args.ranks,
    })??;
    crate::output::print_json(&serde_json::json!({
        "peak_bytes": measured.peak_bytes,
        "seconds_per_step": measured.seconds_per_step,
    }))
}

struct Steps {
    model: TransformerConfig,
    train: TrainConfig,
    ranks: usize,
}

impl Job for Steps {
    type Output = Result<Measured, TrainError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        measure_peak::<B>(&self.model, &self.train, self.ranks, &device)
    }
}
