//! `emberlm data`: inspects, verifies, imports and exports datasets.

mod adopt;
mod export;
mod inspect;
mod verify;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use emberlm_data::{DEFAULT_SHARD_TOKENS, ExportFormat};
use emberlm_tokenizer::TokenizerChoice;

use crate::error::CliError;
use crate::examples;
use crate::new_folder::folder_parser;
use crate::values;

/// Arguments of `data`.
#[derive(Debug, Args)]
#[command(after_help = examples::DATA)]
pub struct DataArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: DataCommand,
}

/// The commands about datasets.
#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Show what a dataset looks like: lengths, frequent tokens, duplicates, leakage, excerpts
    Inspect(InspectArgs),
    /// Compare a dataset with its manifest: lengths, hashes, ids, documents, masks
    Verify(VerifyArgs),
    /// Use token files of llm.c, modded-nanogpt or nanoGPT as a dataset, in place
    Adopt(AdoptArgs),
    /// Write a dataset as the token files of nanoGPT, llm.c or NumPy
    Export(ExportArgs),
}

/// Arguments of `data inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// The dataset's folder
    pub dataset: PathBuf,
    /// Number of documents to show excerpts of
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub excerpts: usize,
    /// The seed that chooses these documents
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `data verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The dataset's folder
    pub dataset: PathBuf,
    /// Print {"whole", "files": [{"file", "tokens", "problems"}], "splits", "foreign"}
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `data adopt`.
#[derive(Debug, Args)]
pub struct AdoptArgs {
    /// The folder with the files; dataset.json is written into it, and nothing else is changed
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// The tokenizer that made them: gpt2, cl100k, o200k, char, byte, or the path of a tokenizer.json or of a folder with one
    #[arg(long, value_name = "NAME|PATH", value_parser = values::tokenizer)]
    pub tokenizer: TokenizerChoice,
    /// The text from which the char tokenizer was built
    #[arg(long, value_name = "FILE")]
    pub alphabet: Option<PathBuf>,
    /// The files for training [default: those with train in their name]
    #[arg(long, value_name = "GLOB")]
    pub train: Option<String>,
    /// The files for validation [default: those with val in their name]
    #[arg(long, value_name = "GLOB")]
    pub val: Option<String>,
    /// Create this folder with links to the files, instead of writing into theirs
    #[arg(long, value_name = "DATASET", value_parser = folder_parser("a dataset"))]
    pub out: Option<PathBuf>,
    /// Replace an existing dataset.json, or the dataset of --out
    #[arg(long)]
    pub force: bool,
}

/// Arguments of `data export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The dataset's folder
    pub dataset: PathBuf,
    /// The file format: nanogpt (train.bin of u16), llmc (NAME_train_000000.bin with headers) or npy (train.npy)
    #[arg(long, value_name = "FORMAT", value_parser = values::export_format())]
    pub format: ExportFormat,
    /// The folder to write
    #[arg(long, value_name = "DIR", value_parser = folder_parser("an exported dataset"))]
    pub out: PathBuf,
    /// The prefix of llmc's file names [default: the dataset's folder]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Maximum number of tokens in one llmc file
    #[arg(
        long, value_name = "N", default_value_t = DEFAULT_SHARD_TOKENS,
        value_parser = clap::value_parser!(u64).range(1..=i32::MAX as u64),
    )]
    pub shard_tokens: u64,
    /// Replace an earlier export
    #[arg(long)]
    pub force: bool,
}

/// Runs the command.
///
/// # Errors
/// Returns the error of the subcommand.
pub fn run(args: DataArgs) -> Result<(), CliError> {
    match args.command {
        DataCommand::Inspect(args) => inspect::run(args),
        DataCommand::Verify(args) => verify::run(args),
        DataCommand::Adopt(args) => adopt::run(args),
        DataCommand::Export(args) => export::run(args),
    }
}
