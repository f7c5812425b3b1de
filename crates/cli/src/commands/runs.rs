//! `emberlm runs`: lists runs, shows and removes them, compares two of them, and edits their tags and notes.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::error::CliError;
use crate::examples;

mod details;
mod diff;
mod facts;
mod labels;
mod list;
mod listed_run;
mod readings;
mod remove;
mod show;
mod table;

pub use details::RunDetails;
pub use diff::DiffArgs;
pub use facts::{date, facts};
pub use labels::{NoteArgs, TagArgs};
pub use remove::RemoveArgs;
pub use show::ShowArgs;
pub use table::age;

/// Arguments of `runs`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = examples::RUNS)]
pub struct RunsArgs {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub command: Option<RunsCommand>,
    /// The folder with the runs, or with sweeps of them
    #[arg(value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
    /// List only runs that have the tag; can be repeated
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
    /// Print [{"name", "path", "status", "step", "steps", "tokens", "loss", "validation", …}]
    #[arg(long)]
    pub json: bool,
    /// Print comma-separated values, with the settings in which the runs differ
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

/// The subcommands that replace the list of runs.
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// Show the configuration, metrics, samples, machine and command line of a run
    Show(ShowArgs),
    /// Remove runs
    Rm(RemoveArgs),
    /// Add tags to a run, or remove them
    Tag(TagArgs),
    /// Write a note on a run
    Note(NoteArgs),
    /// Compare the settings and metrics of two runs
    Diff(DiffArgs),
}

/// Runs the subcommand, or lists the runs with the last active one first.
pub fn run(args: RunsArgs) -> Result<(), CliError> {
    match args.command {
        Some(RunsCommand::Show(args)) => show::run(args),
        Some(RunsCommand::Rm(args)) => remove::run(args),
        Some(RunsCommand::Tag(args)) => labels::tag(args),
        Some(RunsCommand::Note(args)) => labels::note(args),
        Some(RunsCommand::Diff(args)) => diff::run(args),
        None => list::list(args),
    }
}
