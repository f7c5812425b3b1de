//! `emberlm runs diff`: compares the settings and metrics of two runs.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use toml::Value;

use super::readings::{Readings, readings};
use crate::error::{CliError, warn};
use crate::output::{Align, Table, print, print_json};
use crate::run_folders::{check_run, names};
use crate::run_history::History;
use crate::run_settings::{self, RunSettings};

/// Arguments of `runs diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// A run
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// The run to compare it with
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// Print {"runs", "settings": [{"key", "values"}], "metrics": [{"name", "phase", "last", "best"}]}
    #[arg(long)]
    pub json: bool,
}

/// The differences of two runs. Pairs hold the values of the first and the second run.
#[derive(Debug, Serialize)]
struct Differences {
    runs: [String; 2],
    /// Settings with different values.
    settings: Vec<Setting>,
    metrics: Vec<Readings>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Setting {
    key: String,
    /// `None` if a run lacks the setting.
    values: [Option<Value>; 2],
}

/// Prints the differences.
pub fn run(args: DiffArgs) -> Result<(), CliError> {
    let folders = [args.a, args.b];
    let mut histories = Vec::new();
    for folder in &folders {
        check_run(folder)?;
        let history = History::read(folder)?;
        history.damage.iter().for_each(|damage| warn(damage));
        histories.push(history);
    }
    let [a, b] = &folders;
    let settings = differing(&run_settings::read(a)?, &run_settings::read(b)?);
    let mut named = names(&folders).into_iter();
    let runs = [(); 2].map(|()| named.next().unwrap_or_default());
    let differences = Differences {
        runs,
        settings,
        metrics: readings(&histories),
    };
    match args.json {
        true => print_json(&differences),
        false => print(&differences.table()),
    }
}

fn differing(a: &RunSettings, b: &RunSettings) -> Vec<Setting> {
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let pair = |key: &String| Setting {
        key: key.clone(),
        values: [a.get(key).cloned(), b.get(key).cloned()],
    };
    let pairs = keys.into_iter().map(pair);
    pairs
        .filter(|pair| pair.values[0] != pair.values[1])
        .collect()
}

impl Differences {
    fn table(&self) -> String {
        const NONE: &str = "-";
        let [a, b] = &self.runs;
        let mut settings = Table::new([Align::Left, Align::Left, Align::Left]);
        settings.row(["setting", a, b]);
        for setting in &self.settings {
            let [a, b] = setting.values.each_ref().map(|value| match value {
                None => NONE.to_owned(),
                Some(value) => run_settings::shown(value),
            });
            settings.row([setting.key.clone(), a, b]);
        }
        let mut metrics = Table::new([Align::Left, Align::Left, Align::Right, Align::Right]);
        metrics.row(["metric", "", a, b]);
        for readings in &self.metrics {
            let mut row = |which: &str, values: &[Option<f64>]| {
                let shown = values.iter().map(|value| readings.shown(*value));
                metrics.row(
                    [readings.title(), which.to_owned()]
                        .into_iter()
                        .chain(shown),
                );
            };
            row("last", &readings.last);
            if readings.best.iter().any(Option::is_some) {
                row("best", &readings.best);
            }
        }
        match self.settings.is_empty() {
            true => format!("  the settings are the same\n\n{}", metrics.render()),
            false => format!("{}\n{}", settings.render(), metrics.render()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_missing_from_one_run_differ() {
        let settings = |pairs: &[(&str, i64)]| -> RunSettings {
            let pairs = pairs.iter();
            pairs
                .map(|&(key, value)| (key.to_owned(), Value::Integer(value)))
                .collect()
        };
        let found = differing(
            &settings(&[("a", 1), ("b", 2)]),
            &settings(&[("a", 1), ("b", 3), ("c", 4)]),
        );
        let values = [2, 3].map(|x| Some(Value::Integer(x)));
        let expected = [("b", values), ("c", [None, Some(Value::Integer(4))])];
        let expected = expected.map(|(key, values)| Setting {
            key: key.to_owned(),
            values,
        });
        assert_eq!(found, expected);
    }
}
