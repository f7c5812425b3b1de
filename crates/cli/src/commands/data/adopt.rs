//! `emberlm data adopt`: makes a dataset of another program's token files.

use emberlm_data::{AdoptOptions, Adoption};
use emberlm_tokenizer::{TokenizerChoice, TokenizerKind};

use super::AdoptArgs;
use crate::commands::prepare;
use crate::error::{CliError, warn};
use crate::output::print;
use crate::progress;

/// Writes the manifest and prints a summary.
pub(super) fn run(args: AdoptArgs) -> Result<(), CliError> {
    let is_char = args.tokenizer == TokenizerChoice::Named(TokenizerKind::Char);
    if args.alphabet.is_some() && !is_char {
        return Err(CliError::usage("only --tokenizer char has an --alphabet"));
    }
    let options = AdoptOptions {
        tokenizer: args.tokenizer,
        alphabet: args.alphabet,
        train: args.train,
        val: args.val,
        out: args.out,
        force: args.force,
        command: prepare::command(),
    };
    let adoption = Adoption::find(&args.folder, &options)?;
    let bar = progress::bytes("reading", adoption.bytes());
    let adopted = adoption.run(&|bytes| bar.inc(bytes));
    bar.finish_and_clear();
    let adopted = adopted?;
    for warning in &adopted.warnings {
        warn(warning);
    }
    let (out, manifest) = (&adopted.folder, &adopted.manifest);
    print(&prepare::summary::summary("Adopted", out, manifest, ""))
}
