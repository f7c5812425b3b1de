//! Results of a sweep by configuration, averaged over seeds.

use std::collections::BTreeMap;

use serde::Serialize;
use toml::Value;

use super::children::is_finished;
use super::plan::{Plan, PlannedRun};
use super::statistics::Estimate;
use super::stopping::EarlyStop;
use crate::output::{Align, Table};
use crate::plot::{IntervalRow, Intervals};
use crate::run_history::{EvaluationPoint, History};
use crate::run_settings;

/// The results of a sweep.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Configurations by ascending final validation loss, followed by those without one.
    pub configurations: Vec<Configuration>,
}

/// Runs that differ only in the seed.
#[derive(Debug, Serialize)]
pub struct Configuration {
    pub name: String,
    /// The settings that distinguish the configuration.
    pub settings: BTreeMap<String, Value>,
    /// Final validation loss over the finished runs.
    pub validation_loss: Option<Estimate>,
    /// Lowest validation loss of each finished run, averaged.
    pub lowest_validation_loss: Option<Estimate>,
    pub runs: Vec<RunResult>,
}

/// The result of a run.
#[derive(Debug, Serialize)]
pub struct RunResult {
    /// The run's folder name.
    pub name: String,
    /// True if the run reached its last step.
    pub finished: bool,
    /// The decision that stopped the run early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_early: Option<EarlyStop>,
    /// The last validation loss.
    pub validation_loss: Option<f64>,
    /// The lowest validation loss.
    pub lowest_validation_loss: Option<f64>,
    /// The step of the lowest validation loss.
    pub lowest_step: Option<usize>,
}

impl Summary {
    /// Collects the results so far.
    pub fn of(plan: &Plan) -> Self {
        let mut configurations: Vec<Configuration> = Vec::new();
        for run in &plan.runs {
            let result = RunResult::of(run);
            let known = |one: &&mut Configuration| one.name == run.configuration;
            match configurations.iter_mut().find(known) {
                Some(configuration) => configuration.runs.push(result),
                None => configurations.push(Configuration {
                    name: run.configuration.clone(),
                    settings: own(run),
                    validation_loss: None,
                    lowest_validation_loss: None,
                    runs: vec![result],
                }),
            }
        }
        for configuration in &mut configurations {
            configuration.estimate();
        }
        let key = |one: &Configuration| one.validation_loss.map_or(f64::INFINITY, |e| e.mean);
        configurations.sort_by(|a, b| key(a).total_cmp(&key(b)));
        Self { configurations }
    }

    /// The table's column headings.
    pub const HEADINGS: [&'static str; 4] = ["configuration", "runs", "validation loss", "lowest"];

    pub fn rows(&self) -> Vec<Vec<String>> {
        let row = |one: &Configuration| {
            let finished = one.runs.iter().filter(|run| run.finished).count();
            let early = one.runs.iter().filter(|run| run.stopped_early.is_some());
            let runs = match (finished, early.count(), one.runs.len()) {
                (finished, _, all) if finished == all => all.to_string(),
                (finished, 0, all) => format!("{finished} of {all}"),
                (finished, early, all) => format!("{finished} of {all}, {early} stopped early"),
            };
            vec![
                one.name.clone(),
                runs,
                shown(one.validation_loss),
                shown(one.lowest_validation_loss),
            ]
        };
        self.configurations.iter().map(row).collect()
    }

    /// Formats the results as a table.
    pub fn table(&self) -> String {
        let mut table = Table::new([Align::Left, Align::Right, Align::Right, Align::Right]);
        table.row(Self::HEADINGS);
        for row in self.rows() {
            table.row(row);
        }
        table.render()
    }

    /// The plot of the results. Returns `None` if no run has a validation loss.
    pub fn picture(&self, title: &str) -> Option<Intervals> {
        let row = |one: &Configuration| {
            let last = one.validation_loss.filter(|last| last.mean.is_finite())?;
            let finished = one.runs.iter().filter(|run| run.finished);
            Some(IntervalRow {
                name: one.name.clone(),
                values: finished.filter_map(|run| run.validation_loss).collect(),
                mean: last.mean,
                half_width: last.half_width,
                lowest: one.lowest_validation_loss?.mean,
                text: shown(Some(last)),
            })
        };
        let rows: Vec<_> = self.configurations.iter().filter_map(row).collect();
        (!rows.is_empty()).then(|| Intervals {
            title: title.to_owned(),
            rows,
        })
    }
}

impl Configuration {
    fn estimate(&mut self) {
        let of = |value: fn(&RunResult) -> Option<f64>| {
            let finished = self.runs.iter().filter(|run| run.finished);
            Estimate::of(&finished.filter_map(value).collect::<Vec<_>>())
        };
        let last = of(|run| run.validation_loss);
        let lowest = of(|run| run.lowest_validation_loss);
        (self.validation_loss, self.lowest_validation_loss) = (last, lowest);
    }
}

impl RunResult {
    fn of(run: &PlannedRun) -> Self {
        let history = History::read(&run.folder).unwrap_or_default();
        let loss = |evaluated: Option<EvaluationPoint>| evaluated.map(|found| found.loss);
        let finished = is_finished(run);
        Self {
            name: run.name.clone(),
            finished,
            stopped_early: run.stopped_early().filter(|_| !finished),
            validation_loss: loss(history.last_evaluation()),
            lowest_validation_loss: loss(history.best()),
            lowest_step: history.best().map(|best| best.step),
        }
    }
}

/// The settings that distinguish a run's configuration.
fn own(run: &PlannedRun) -> BTreeMap<String, Value> {
    let settings = run
        .settings
        .iter()
        .filter(|(key, _)| key != run_settings::SEED);
    settings.cloned().collect()
}

fn shown(estimate: Option<Estimate>) -> String {
    match estimate {
        None => "-".to_owned(),
        Some(Estimate {
            mean,
            half_width: Some(half),
            ..
        }) => format!("{mean:.4} ± {half:.4}"),
        Some(Estimate { mean, .. }) => format!("{mean:.4}"),
    }
}
