//! Progress as plain text: one line per logged step and per evaluation.

use super::Say;
use crate::report::metrics::{Figures, Metric, Phase, ProgressDisplay, ShownMetrics};

/// The metrics that have a place in a line.
const NAMED: [&str; 5] = [
    "loss",
    "perplexity",
    "learning_rate",
    "gradient_norm",
    "tokens_per_second",
];

/// The display of a run without a terminal.
pub(crate) struct PlainLines {
    steps: usize,
    say: Say,
    training: ShownMetrics,
    validation: ShownMetrics,
}

impl PlainLines {
    /// Creates the display of a run of `steps` steps, which passes each line to `say`. `added` are the metrics that are not
    /// built in.
    pub(crate) fn new(steps: usize, say: Say, added: &[Metric]) -> Self {
        Self {
            steps,
            say,
            training: ShownMetrics::new(added, Phase::Training),
            validation: ShownMetrics::new(added, Phase::Validation),
        }
    }

    fn line(&self, step: usize, text: std::fmt::Arguments<'_>) {
        let width = self.steps.to_string().len();
        (self.say)(&format!("step {step:>width$}/{}  {text}", self.steps));
    }
}

/// The value of a metric that every run has.
fn value(values: &ShownMetrics, name: &str) -> String {
    values.text(name).unwrap_or_else(|| "-".to_owned())
}

/// Formats the perplexity, if the run has one.
fn perplexity(values: &ShownMetrics) -> String {
    let value = values.text("perplexity");
    value.map_or_else(String::new, |value| format!("  perplexity {value}"))
}

/// Formats the metrics that are not in [`NAMED`].
fn others(values: &ShownMetrics) -> String {
    let others = values.others(&NAMED).into_iter();
    others
        .map(|(tab, value)| format!("  {} {value}", tab.to_lowercase()))
        .collect()
}

impl ProgressDisplay for PlainLines {
    fn show_step(&mut self, step: usize, figures: &Figures) {
        self.training.update(&figures.readings);
        let values = &self.training;
        self.line(
            step,
            format_args!(
                "loss {}{}  rate {}  gradient norm {}  {} tokens/s{}  {} left",
                value(values, "loss"),
                perplexity(values),
                value(values, "learning_rate"),
                value(values, "gradient_norm"),
                value(values, "tokens_per_second"),
                others(values),
                figures.time_left(),
            ),
        );
    }

    fn show_evaluation(&mut self, step: usize, figures: &Figures) {
        self.validation.update(&figures.readings);
        let values = &self.validation;
        self.line(
            step,
            format_args!(
                "validation loss {}{}{}{}",
                value(values, "loss"),
                perplexity(values),
                others(values),
                figures.datasets,
            ),
        );
    }
}
