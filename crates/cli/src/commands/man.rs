//! `emberlm man`: generates man pages from the command-line definitions.

use std::fs;
use std::path::PathBuf;

use clap::{Args, CommandFactory};

use crate::commands::Cli;
use crate::error::CliError;
use crate::examples;
use crate::new_folder::folder_parser;
use crate::output::print;

/// Arguments of `man`.
#[derive(Clone, Debug, Args)]
#[command(after_help = examples::MAN)]
pub struct ManArgs {
    /// The folder of the pages, such as ~/.local/share/man/man1; pages of the same names are replaced
    #[arg(long, value_name = "DIR", value_parser = folder_parser("a set of man pages"))]
    out: PathBuf,
}

/// Writes `emberlm.1` and a page for each command, such as `emberlm-train.1`.
///
/// # Errors
/// Returns an error if the pages or stdout cannot be written.
pub fn run(args: &ManArgs) -> Result<(), CliError> {
    let out = &args.out;
    fs::create_dir_all(out).map_err(CliError::io("create", out))?;
    clap_mangen::generate_to(Cli::command(), out).map_err(CliError::io("write to", out))?;
    print(&format!("wrote {}", out.join("emberlm.1").display()))
}
