//! `emberlm reference`, hidden: generates pages of `docs/reference` for `cargo xtask reference`.

use clap::{Args, ValueEnum};

use crate::error::CliError;
use crate::output::print;

mod command_line;
mod configuration;
mod files;
mod http_api;
mod metrics;
mod schema;
mod template;

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
    /// The HTTP API, from the server's OpenAPI description.
    HttpApi,
    /// Files, from the types that read and write them.
    Files,
}

/// Prints a page as Markdown.
///
/// # Errors
/// Returns an error if stdout cannot be written, or a template does not match its tables.
pub fn run(args: ReferenceArgs) -> Result<(), CliError> {
    let page = match args.page {
        Page::Commands => command_line::page(),
        Page::Configuration => configuration::page(),
        Page::Metrics => metrics::page(),
        Page::HttpApi => http_api::page()?,
        Page::Files => files::page()?,
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
