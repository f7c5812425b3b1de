//! `emberlm runs show`: prints everything that is known about a run.

use std::path::PathBuf;

use clap::Args;
use emberlm_system::text::escaped;

use super::details::RunDetails;
use super::facts::{date, facts};
use crate::error::CliError;
use crate::output::{Align, Table, print, print_json};
use crate::run_history::Status;
use crate::run_settings::shown;

/// Arguments of `runs show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The run
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Print {"name", "path", "status", "step", "metrics", "settings", "sessions", "samples", …}
    #[arg(long)]
    pub json: bool,
}

/// Prints a run.
pub fn run(args: ShowArgs) -> Result<(), CliError> {
    let details = RunDetails::read(&args.run)?;
    match args.json {
        true => print_json(&details),
        false => print(&text(&details)),
    }
}

fn text(run: &RunDetails) -> String {
    let mut text = format!("{}: {}\n", escaped(&run.name), Status::name(run.status));
    text += &pairs(facts(run));
    if !run.settings.is_empty() {
        let settings = run
            .settings
            .iter()
            .map(|(key, value)| (key.clone(), shown(value)));
        text += &format!("\nSettings\n{}", pairs(settings));
    }
    if !run.metrics.is_empty() {
        let mut table = Table::new([Align::Left, Align::Right, Align::Right]);
        table.row(["", "last", "best"]);
        for metric in &run.metrics {
            table.row(metric.shown.clone());
        }
        text += &format!("\nMetrics\n{}", table.render());
    }
    for session in &run.sessions {
        text += &format!(
            "\nSession of {}, from step {}\n",
            date(session.time),
            session.step
        );
        let mut rows = vec![("version".to_owned(), session.version.clone())];
        rows.push(("backend".to_owned(), session.backend.clone()));
        rows.extend(session.machine.clone());
        rows.extend(
            session
                .command
                .clone()
                .map(|line| ("command".to_owned(), line)),
        );
        text += &pairs(rows);
    }
    if let Some(sample) = run.samples.last() {
        text += &format!("\nSample at step {}\n", sample.step);
        for line in sample.text.lines() {
            text += &format!("  {line}\n");
        }
    }
    text
}

fn pairs(rows: impl IntoIterator<Item = (String, String)>) -> String {
    let mut table = Table::new([Align::Left, Align::Left]);
    for (name, value) in rows {
        table.row([name, value]);
    }
    table.render()
}
