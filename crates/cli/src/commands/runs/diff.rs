//! `emberlm runs diff`: compares the settings and metrics of two runs.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use emberlm_trainer::metrics::{Direction, Metric, built_in};
use serde::Serialize;
use toml::Value;

use crate::error::{CliError, warn};
use crate::output::{Align, Table, print, print_json};
use crate::run_folders::{check_run, names};
use crate::run_history::{History, Series};
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

/// Readings of a metric in one phase.
#[derive(Debug, Serialize)]
struct Readings {
    name: String,
    phase: &'static str,
    last: [Option<f64>; 2],
    /// The best reading by the metric's direction, if it has one.
    best: [Option<f64>; 2],
    #[serde(skip)]
    metric: Metric,
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

/// Readings of a metric, as pairs of step and value.
type Points = [(usize, f64)];
/// Selects the metrics of one phase of a run.
type Phase = fn(&History) -> &Series;

/// Readings of each metric that either run has. Built-in metrics are listed first.
fn readings(histories: &[History]) -> Vec<Readings> {
    let mut metrics: Vec<&Metric> = built_in().iter().collect();
    for metric in histories.iter().flat_map(|history| &history.metrics) {
        if !metrics.iter().any(|known| known.name == metric.name) {
            metrics.push(metric);
        }
    }
    let series: [(&str, Phase); 2] = [
        ("training", |history| &history.trained),
        ("validation", |history| &history.validated),
    ];
    let of = |metric: &Metric, phase, series: Phase| {
        let pair = |pick: &dyn Fn(&Points) -> Option<f64>| {
            let one = |at: usize| {
                let points = series(histories.get(at)?).get(metric.name.as_ref())?;
                pick(points)
            };
            [one(0), one(1)]
        };
        Readings {
            name: metric.name.clone().into_owned(),
            phase,
            last: pair(&|points| points.last().map(|point| point.1)),
            best: pair(&|points| best(metric.direction, points)),
            metric: metric.clone(),
        }
    };
    let all = metrics.into_iter().flat_map(|metric| {
        series
            .iter()
            .map(move |&(phase, series)| (metric, phase, series))
    });
    let all = all.map(|(metric, phase, series)| of(metric, phase, series));
    all.filter(|readings| readings.last.iter().any(Option::is_some))
        .collect()
}

fn best(direction: Direction, points: &Points) -> Option<f64> {
    let values = points.iter().map(|point| point.1);
    let values = values.filter(|value| !value.is_nan());
    match direction {
        Direction::LowerIsBetter => values.reduce(f64::min),
        Direction::HigherIsBetter => values.reduce(f64::max),
        Direction::Neutral => None,
    }
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
            let name = format!(
                "{} {}",
                readings.phase,
                readings.metric.title.to_lowercase()
            );
            let mut row = |which: &str, values: [Option<f64>; 2]| {
                let shown = |value: Option<f64>| {
                    value.map_or_else(|| NONE.to_owned(), |value| readings.metric.display(value))
                };
                let [a, b] = values.map(shown);
                metrics.row([name.clone(), which.to_owned(), a, b]);
            };
            row("last", readings.last);
            if readings.best.iter().any(Option::is_some) {
                row("best", readings.best);
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

    #[test]
    fn the_best_reading_follows_the_direction() {
        let points = [(1, 2.0), (2, f64::NAN), (3, 1.0), (4, 3.0)];
        assert_eq!(best(Direction::LowerIsBetter, &points), Some(1.0));
        assert_eq!(best(Direction::HigherIsBetter, &points), Some(3.0));
        assert_eq!(best(Direction::Neutral, &points), None);
    }
}
