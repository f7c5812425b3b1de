//! `emberlm tokenizer convert`: converts other formats to `tokenizer.json`.

use emberlm_tokenizer::Tokenizer;
use indicatif::HumanCount;

use super::args::ConvertArgs;
use super::{next_command, write};
use crate::error::CliError;
use crate::new_folder::NewFolder;
use crate::output::print;

/// Writes the tokenizer and prints a summary.
pub(super) fn run(args: ConvertArgs) -> Result<(), CliError> {
    let folder = NewFolder::begin(&args.out, false, "a tokenizer", |_| false)?;
    let tokenizer = Tokenizer::from_file_with(&args.file, args.pattern, &args.special)?;
    write(folder, &tokenizer)?;
    let end = match tokenizer.end_of_text() {
        Some(id) => format!("{id} ends a text"),
        None => "no special token ends a text".to_owned(),
    };
    print(&format!(
        "Wrote {} with {} ids; {end}\nNext: {}\n",
        args.out.display(),
        HumanCount(tokenizer.vocab_size() as u64),
        next_command("FILE", &args.out),
    ))
}
