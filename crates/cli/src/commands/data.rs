//! `emberlm data`: what a dataset consists of, and whether it is whole.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use emberlm_data::Dataset;

use crate::error::CliError;
use crate::output::print;

/// Arguments of `data`.
#[derive(Debug, Args)]
pub struct DataArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: DataCommand,
}

/// The commands about datasets.
#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Compare a dataset with its manifest
    Verify {
        /// The dataset's folder
        dataset: PathBuf,
    },
}

/// Runs the command.
///
/// # Errors
/// Whatever keeps it from its end.
pub fn run(args: DataArgs) -> Result<(), CliError> {
    match args.command {
        DataCommand::Verify { dataset } => verify(&dataset),
    }
}

fn verify(dataset: &Path) -> Result<(), CliError> {
    Dataset::open(dataset)?.verify()?;
    print(&format!("{} is whole\n", dataset.display()))
}
