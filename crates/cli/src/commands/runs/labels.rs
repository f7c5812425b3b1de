//! `emberlm runs tag` and `runs note`: edits the labels of runs.

use std::path::PathBuf;

use clap::Args;

use crate::error::CliError;
use crate::run_folders::check_run;
use crate::run_labels::{self, RunLabels};

/// Arguments of `runs tag`.
#[derive(Debug, Args)]
pub struct TagArgs {
    /// The run
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Tags to add
    #[arg(value_name = "TAG", required = true, value_parser = run_labels::tag)]
    pub tags: Vec<String>,
    /// Remove them instead
    #[arg(long)]
    pub remove: bool,
}

/// Arguments of `runs note`.
#[derive(Debug, Args)]
pub struct NoteArgs {
    /// The run
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// The note, which replaces an existing one; an empty text removes it
    #[arg(value_name = "TEXT", value_parser = run_labels::note)]
    pub note: String,
}

/// Adds or removes tags.
pub fn tag(args: TagArgs) -> Result<(), CliError> {
    check_run(&args.run)?;
    let mut labels = RunLabels::read(&args.run)?;
    for tag in args.tags {
        match args.remove {
            false => labels.tags.insert(tag),
            true if labels.tags.remove(&tag) => true,
            true => {
                let run = args.run.display();
                return Err(CliError::new(format!("{run} has no tag {tag}")));
            }
        };
    }
    labels.write(&args.run)
}

/// Sets the note.
pub fn note(args: NoteArgs) -> Result<(), CliError> {
    check_run(&args.run)?;
    let mut labels = RunLabels::read(&args.run)?;
    labels.note = args.note;
    labels.write(&args.run)
}
