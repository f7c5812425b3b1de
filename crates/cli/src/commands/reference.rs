//! `emberlm reference`, hidden: generates pages of `docs/reference` for `cargo xtask reference`.

use clap::{Args, ValueEnum};

use crate::error::CliError;
use crate::output::print;

mod command_line;
mod configuration;
mod metrics;

/// Arguments of `reference`.
#[derive(Clone, Copy, Debug, Args)]
pub struct ReferenceArgs {
    /// The page
    page: Page,
}

/// A generated page.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Page {
    /// Commands and their options, from the parser of the command line.
    Commands,
    /// The keys of `config.toml`, from the types that read it.
    Configuration,
    /// The metrics of every run, from the table that declares them.
    Metrics,
}

/// Prints a page as Markdown.
///
/// # Errors
/// Returns an error if stdout cannot be written.
pub fn run(args: ReferenceArgs) -> Result<(), CliError> {
    let page = match args.page {
        Page::Commands => command_line::page(),
        Page::Configuration => configuration::page(),
        Page::Metrics => metrics::page(),
    };
    print(page.trim_end())
}

/// Formats a table row. Escapes `|` in cells.
fn row<const N: usize>(cells: [String; N]) -> String {
    let cells = cells.map(|cell| cell.replace('|', "\\|").replace('\n', " "));
    format!("| {} |\n", cells.join(" | "))
}

/// Formats a table header.
fn header<const N: usize>(titles: [&str; N]) -> String {
    let line = row(["---"; N].map(str::to_owned));
    format!("{}{line}", row(titles.map(str::to_owned)))
}

fn code(text: &str) -> String {
    format!("`{text}`")
}
