//! `emberlm measure`: what a step costs a GPU, and the measurements of `emberlm doctor --full`.

mod step;

use clap::{Args, Subcommand};

use super::doctor::measure::{self as speed, MeasureArgs as SpeedArgs, Subject};
use crate::error::CliError;
use crate::examples;

/// Arguments of `measure`.
#[derive(Debug, Args)]
#[command(after_help = examples::MEASURE)]
pub struct MeasureArgs {
    /// The measurement.
    #[command(subcommand)]
    pub measured: Measured,
}

/// The measurements.
#[derive(Debug, Subcommand)]
pub enum Measured {
    /// Count kernel launches, synchronizations, bytes and products of a training step
    #[command(after_help = examples::MEASURE)]
    Step(step::StepArgs),
    /// Measure training steps (run by `emberlm doctor --full`)
    #[command(hide = true)]
    Training(SpeedArgs),
    /// Measure a prompt and the tokens after it (run by `emberlm doctor --full`)
    #[command(hide = true)]
    Generation(SpeedArgs),
    /// Measure the memory of a training step (run by `emberlm doctor --full`)
    #[command(hide = true)]
    Memory(SpeedArgs),
}

/// Runs the command.
///
/// # Errors
/// Returns an error if the configuration is invalid, the backend is unavailable or a step fails.
pub fn run(args: MeasureArgs) -> Result<(), CliError> {
    match args.measured {
        Measured::Step(args) => step::run(args),
        Measured::Training(args) => speed::run(Subject::Training, &args),
        Measured::Generation(args) => speed::run(Subject::Generation, &args),
        Measured::Memory(args) => speed::run(Subject::Memory, &args),
    }
}
