//! `cargo xtask bench`: builds the release binary, measures it, and compares it with a PyTorch twin on request.
//!
//! Map: `train` is the one benchmark, `measurement` what each run prints, `report` how results are shown.

mod measurement;
mod report;
mod train;

use std::process::ExitCode;

use crate::error::Error;

/// Arguments of `cargo xtask bench`.
#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Debug, clap::Subcommand)]
enum Subject {
    /// Training steps: tokens/s, seconds per step and peak resident memory.
    Train(train::TrainArgs),
}

/// Runs the benchmark.
pub fn run(args: &BenchArgs) -> Result<ExitCode, Error> {
    let Subject::Train(train) = &args.subject;
    train::run(train)?;
    Ok(ExitCode::SUCCESS)
}
