//! `emberlm tokenizer`: trains, compares and converts tokenizers.

mod args;
mod convert;
mod stats;
mod train;
mod waves;

use std::fs;
use std::path::Path;

use emberlm_tokenizer::{TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, Tokenizer};

pub use self::args::TokenizerArgs;
use self::args::TokenizerCommand;
use crate::error::CliError;
use crate::new_folder::NewFolder;

/// Runs the command.
///
/// # Errors
/// Returns the error of the subcommand.
pub fn run(args: TokenizerArgs) -> Result<(), CliError> {
    match args.command {
        TokenizerCommand::Train(args) => train::run(args),
        TokenizerCommand::Stats(args) => stats::run(args),
        TokenizerCommand::Convert(args) => convert::run(args),
    }
}

/// Writes the tokenizer in Hugging Face's format and moves the folder to its destination.
fn write(folder: NewFolder, tokenizer: &Tokenizer) -> Result<(), CliError> {
    let write = |name: &str, json: Vec<u8>| {
        let path = folder.path().join(name);
        fs::write(&path, json).map_err(CliError::io("write", &path))
    };
    write(TOKENIZER_FILE, tokenizer.to_tokenizer_json())?;
    write(
        TOKENIZER_CONFIG_FILE,
        tokenizer.to_tokenizer_config_json(None),
    )?;
    folder.finish()
}

/// The command that creates a dataset with the tokenizer.
fn next_command(file: &str, folder: &Path) -> String {
    let [file, folder] = [file, &folder.to_string_lossy()].map(crate::shell::shell_word);
    format!("emberlm prepare {file} --out DATASET --tokenizer {folder}")
}
