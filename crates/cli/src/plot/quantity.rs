//! The plotted metric.

use std::collections::BTreeSet;

use emberlm_trainer::metrics::{Aggregation, Direction, Metric};

use super::group::NamedRun;
use super::smooth::smoothed;
use crate::error::CliError;
use crate::run_history::{History, Series, SkippedStep};

/// The metric on the vertical axis.
#[derive(Clone, Debug)]
pub struct Quantity(Metric);

impl Quantity {
    /// The quantity of a metric.
    pub fn new(metric: Metric) -> Self {
        Self(metric)
    }

    /// Returns the metric `name` if any run has readings of it.
    ///
    /// # Errors
    /// Returns an error if no run has.
    pub fn find<'a>(
        name: &str,
        runs: impl Iterator<Item = &'a NamedRun> + Clone,
    ) -> Result<Self, CliError> {
        let found = runs.clone().find_map(|run| run.history.metric(name));
        if let Some(metric) = found {
            return Ok(Self(metric.clone()));
        }
        let read = |run: &NamedRun| {
            let names = run
                .history
                .trained
                .keys()
                .chain(run.history.validated.keys());
            names.cloned().collect::<Vec<_>>()
        };
        let known: BTreeSet<String> = runs.flat_map(read).collect();
        let known: Vec<String> = known.into_iter().collect();
        let message = format!("the runs have no metric `{name}`");
        Err(CliError::usage(message).hint(format!("--y may be {}", known.join(", "))))
    }

    /// The axis label: title and unit.
    pub fn label(&self) -> String {
        self.0.label()
    }

    /// The metric's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The direction of better values.
    pub fn direction(&self) -> Direction {
        self.0.direction
    }

    /// Formats a value that is in displayed units.
    pub fn shown(&self, value: f64) -> String {
        self.0.display(value / self.0.scale)
    }

    /// Returns true if the highest values may be cut off.
    pub fn has_outliers(&self) -> bool {
        self.0.aggregation != Aggregation::Last
    }

    /// Returns true if the axis starts at 0.
    pub fn begins_at_zero(&self) -> bool {
        self.0.direction != Direction::LowerIsBetter
    }

    /// Converts a loss to this quantity. Returns `None` if the quantity is not a function of the loss.
    pub fn of_loss(&self, loss: f64) -> Option<f64> {
        match self.0.name.as_ref() {
            "loss" => Some(loss),
            "perplexity" => Some(loss.exp()),
            _ => None,
        }
    }

    /// Returns the readings by step, in displayed units.
    pub fn points(&self, series: &Series) -> Vec<(usize, f64)> {
        let points = series.get(self.0.name.as_ref()).into_iter().flatten();
        points.map(|&(step, y)| (step, self.0.scale * y)).collect()
    }

    /// Smooths a curve. Perplexities are averaged in log space, as losses.
    pub fn smoothed(&self, points: &[(f64, f64)]) -> Option<Vec<(f64, f64)>> {
        match self.0.aggregation {
            Aggregation::Last => None,
            Aggregation::GeometricMean => {
                let logs: Vec<_> = points.iter().map(|&(x, y)| (x, y.ln())).collect();
                let smooth = smoothed(&logs)?.into_iter();
                Some(smooth.map(|(x, log)| (x, log.exp())).collect())
            }
            _ => smoothed(points),
        }
    }

    /// The quantity's values at skipped steps.
    pub fn skipped(&self, history: &History) -> Vec<(usize, Option<f64>)> {
        let of = |skipped: &SkippedStep| match self.0.name.as_ref() {
            "gradient_norm" => Some((skipped.step, skipped.gradient_norm)),
            "loss" | "perplexity" => {
                let value = skipped.loss.and_then(|loss| self.of_loss(loss));
                Some((skipped.step, value))
            }
            _ => None,
        };
        history.skipped.iter().filter_map(of).collect()
    }
}
