//! `emberlm tokenizer`: making tokenizers and comparing them.

use std::fs;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use emberlm_tokenizer::{Tokenizer, TokenizerChoice};

use crate::error::CliError;
use crate::output::print;
use crate::values;

/// Arguments of `tokenizer`.
#[derive(Debug, Args)]
pub struct TokenizerArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TokenizerCommand,
}

/// The commands about tokenizers.
#[derive(Debug, Subcommand)]
pub enum TokenizerCommand {
    /// Compare tokenizers on a text
    Stats {
        /// The text
        file: PathBuf,
        /// A tokenizer; may be given again
        #[arg(long, required = true, value_parser = values::tokenizer)]
        tokenizer: Vec<TokenizerChoice>,
    },
}

/// Runs the command.
///
/// # Errors
/// Whatever keeps it from its end.
pub fn run(args: TokenizerArgs) -> Result<(), CliError> {
    match args.command {
        TokenizerCommand::Stats { file, tokenizer } => {
            let text = fs::read_to_string(&file).map_err(CliError::io("read", &file))?;
            for choice in tokenizer {
                let tokenizer = match &choice {
                    TokenizerChoice::Named(kind) => Tokenizer::builtin(*kind)?,
                    TokenizerChoice::File(path) => Tokenizer::from_file(path)?,
                };
                let tokens = tokenizer.encode(&text)?.len().max(1);
                let ratio = text.len() as f64 / tokens as f64;
                print(&format!("{choice}  {ratio:.2} bytes per token\n"))?;
            }
            Ok(())
        }
    }
}
