//! `emberlm report`: writes a run or a sweep as one document.
//!
//! | module | contents |
//! |---|---|
//! | `document` | the blocks of a document, as HTML or Markdown |
//! | `run`, `sweep` | the blocks of a run, and of a folder of runs |
//! | `curves` | plots of runs |

mod curves;
mod document;
mod run;
mod sweep;

use std::path::PathBuf;

use clap::{Args, ValueHint};
use emberlm_system::write::write_whole;

use crate::error::CliError;
use crate::examples;
use crate::output::print;
use crate::run_folders::{check_run, is_run, runs_in};
pub use document::{Block, Document};

/// Arguments of `report`.
#[derive(Debug, Args)]
#[command(after_help = examples::REPORT)]
pub struct ReportArgs {
    /// A run, or a folder of runs such as a sweep
    #[arg(value_name = "RUN|SWEEP")]
    pub subject: PathBuf,
    /// The document's file: a page with pictures, or Markdown without them
    #[arg(long, value_name = ReportFile::VALUE_NAME, value_parser = ReportFile::parse, value_hint = ValueHint::FilePath)]
    pub out: ReportFile,
}

/// Renders a document in a format.
type Render = fn(&Document) -> String;

/// The file of a report, whose format follows from its extension.
#[derive(Clone, Debug)]
pub struct ReportFile {
    path: PathBuf,
    render: Render,
}

impl ReportFile {
    /// The value name in `--help`.
    pub const VALUE_NAME: &str = "FILE.html|.md";

    /// Parses a file name.
    ///
    /// # Errors
    /// Returns an error if the extension is not supported.
    pub fn parse(text: &str) -> Result<Self, String> {
        let path = PathBuf::from(text);
        let extension = path.extension().unwrap_or_default();
        let formats: [(&str, Render); 2] = [("html", Document::html), ("md", Document::markdown)];
        let known = formats
            .into_iter()
            .find(|(ending, _)| extension.eq_ignore_ascii_case(ending));
        match known {
            Some((_, render)) => Ok(Self { path, render }),
            None => Err("must end in .html or .md".to_owned()),
        }
    }

    /// Writes a document.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write(&self, document: &Document) -> Result<(), CliError> {
        let text = (self.render)(document);
        write_whole(&self.path, text.as_bytes()).map_err(CliError::io("write", &self.path))
    }
}

/// Writes the report.
pub fn run(args: ReportArgs) -> Result<(), CliError> {
    let subject = &args.subject;
    let runs = match subject.is_dir() && !is_run(subject) {
        true => runs_in(subject)?,
        false => Vec::new(),
    };
    let document = match runs.is_empty() {
        true => {
            check_run(subject)?;
            run::document(subject)?
        }
        false => sweep::document(subject, &runs)?,
    };
    args.out.write(&document)?;
    print(&format!("{}\n", args.out.path.display()))
}
