//! `emberlm data verify`: checks a dataset against its manifest.

use std::path::Path;

use emberlm_data::{Dataset, Verification, verify};
use indicatif::HumanCount;
use serde::Serialize;

use super::VerifyArgs;
use crate::error::CliError;
use crate::output::{Align, Table, print, print_json};
use crate::progress;

#[derive(Serialize)]
struct Report<'a> {
    whole: bool,
    #[serde(flatten)]
    found: &'a Verification,
}

/// Prints one line per file. Returns an error if any file is damaged.
pub(super) fn run(args: VerifyArgs) -> Result<(), CliError> {
    let dataset = Dataset::open(&args.dataset)?;
    let bar = progress::bytes("verifying", dataset.bytes());
    let found = verify(&dataset, &|bytes| bar.inc(bytes));
    bar.finish_and_clear();
    let found = found?;
    let whole = found.is_whole();
    match args.json {
        true => print_json(&Report {
            whole,
            found: &found,
        })?,
        false => print(&lines(&args.dataset, &found))?,
    }
    match whole {
        true => Ok(()),
        false => {
            let message = format!("{} differs from its manifest", args.dataset.display());
            let hint = "take the files again from where they came from, or make the dataset again";
            Err(CliError::new(message).hint(hint))
        }
    }
}

fn lines(folder: &Path, found: &Verification) -> String {
    let mut table = Table::new([Align::Left, Align::Left, Align::Right]);
    for check in &found.files {
        let tokens = format!("{} tokens", HumanCount(check.tokens));
        let state = match check.problems.is_empty() {
            true => "ok",
            false => "wrong",
        };
        table.row([state.to_owned(), check.file.clone(), tokens]);
    }
    for name in &found.foreign {
        // An unexpected file can have any name, so control characters are escaped.
        table.row(["other", &name.escape_debug().to_string()]);
    }
    let mut text = table.render();
    match found.is_whole() {
        true => text += &format!("{} is complete and undamaged\n", folder.display()),
        false => {
            text += "What is wrong:\n";
            for problem in found.problems() {
                text += &format!("  {problem}\n");
            }
        }
    }
    text
}
