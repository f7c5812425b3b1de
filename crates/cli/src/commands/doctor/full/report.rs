//! The report, as Markdown and JSON.

use std::fs;
use std::path::Path;

use chrono::{SecondsFormat, Utc};
use emberlm_system::text::escaped;
use serde::Serialize;

use super::Size;
use super::check::Check;
use super::finding::{Finding, Findings, LossPair, Outcome};
use crate::backend::Placement;
use crate::backend::machine::Machine;
use crate::error::CliError;
use crate::output::{Align, Table};

/// The human-readable file.
pub const MARKDOWN_FILE: &str = "report.md";

/// The machine-readable file.
const JSON_FILE: &str = "report.json";

/// A report on a device.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of this program.
    emberlm: &'static str,
    backend: &'static str,
    /// Start time in UTC.
    time: String,
    size: Size,
    minutes: f64,
    machine: Machine,
    /// Total time of all checks.
    seconds: f64,
    checks: Vec<CheckReport>,
}

/// The result of one check.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    check: Check,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
    seconds: f64,
    rows: Vec<Finding>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    losses: Vec<LossPair>,
}

impl CheckReport {
    /// Creates the result of a check that took `seconds`.
    pub fn new(check: Check, seconds: f64, findings: Findings) -> Self {
        Self {
            check,
            outcome: findings.outcome,
            seconds,
            rows: findings.rows,
            losses: findings.losses,
        }
    }
}

impl Report {
    /// Creates a report without checks.
    pub fn new(machine: Machine, placement: Placement, size: Size, minutes: f64) -> Self {
        Self {
            emberlm: env!("CARGO_PKG_VERSION"),
            backend: placement.name(),
            time: Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true),
            size,
            minutes,
            machine,
            seconds: 0.0,
            checks: Vec::new(),
        }
    }

    /// Adds a check. `seconds` is the total time so far.
    pub fn add(&mut self, check: CheckReport, seconds: f64) {
        self.checks.push(check);
        self.seconds = seconds;
    }

    pub fn failed(&self) -> impl Iterator<Item = Check> {
        let failed = self
            .checks
            .iter()
            .filter(|check| check.outcome.is_failure());
        failed.map(|check| check.check)
    }

    /// Writes both files.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn write(&self, out: &Path) -> Result<(), CliError> {
        let json = serde_json::to_string_pretty(self)
            .map_err(|error| CliError::new(format!("cannot write the report as JSON: {error}")))?;
        for (name, text) in [(MARKDOWN_FILE, self.markdown()), (JSON_FILE, json + "\n")] {
            let path = out.join(name);
            fs::write(&path, text).map_err(CliError::io("write", &path))?;
        }
        Ok(())
    }

    /// A table with one line per check.
    pub fn summary(&self) -> String {
        let mut table = Table::new([Align::Left, Align::Right, Align::Left]);
        for check in &self.checks {
            let seconds = format!("{:.0} s", check.seconds);
            table.row([check.check.name(), &seconds, &check.outcome.to_string()]);
        }
        table.render()
    }

    /// The human-readable report.
    fn markdown(&self) -> String {
        let mut text = format!("# emberlm on {}\n\n", self.backend);
        let mut facts = vec![
            ("emberlm", self.emberlm.to_owned()),
            ("time", self.time.clone()),
        ];
        facts.extend(self.machine.rows());
        let limit = format!("{:.0} s of at most {} min", self.seconds, self.minutes);
        facts.push(("total time", limit));
        text += &row(["", ""]);
        text += "|---|---|\n";
        for (name, value) in facts {
            text += &row([name, &value]);
        }
        text += "\n| check | outcome | seconds |\n|---|---|---:|\n";
        for check in &self.checks {
            let seconds = format!("{:.1}", check.seconds);
            text += &row([check.check.name(), &check.outcome.to_string(), &seconds]);
        }
        for check in &self.checks {
            text += &check.markdown(self.backend);
        }
        text
    }
}

impl CheckReport {
    fn markdown(&self, backend: &str) -> String {
        let mut text = format!("\n## {}\n\n{}\n", self.check, self.check.description());
        if !self.rows.is_empty() {
            text += "\n| | value | allowed | outcome |\n|---|---:|---:|---|\n";
        }
        for found in &self.rows {
            let shown =
                |value: Option<f64>| value.map_or(String::new(), |value| found.unit.shown(value));
            let outcome = found.outcome.to_string();
            let cells = [
                &found.name,
                &shown(found.value),
                &shown(found.allowed),
                &outcome,
            ];
            text += &row(cells.map(String::as_str));
        }
        if !self.losses.is_empty() {
            text += &format!("\n| step | expected | {backend} |\n|---:|---:|---:|\n");
        }
        for pair in &self.losses {
            let losses = [pair.expected, pair.found].map(|loss| format!("{loss:.6}"));
            text += &row([&pair.step.to_string(), &losses[0], &losses[1]]);
        }
        if self.rows.is_empty() {
            text += &format!("\n{}\n", escaped(&self.outcome.to_string()));
        }
        text
    }
}

/// Formats a row of a Markdown table. Escapes line breaks and `|` in cells.
fn row<const N: usize>(cells: [&str; N]) -> String {
    let cells = cells.map(|cell| escaped(cell).replace('|', "\\|"));
    format!("| {} |\n", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_cells_are_escaped() {
        assert_eq!(row(["a|b", "c\nd"]), "| a\\|b | c\\nd |\n");
    }
}
