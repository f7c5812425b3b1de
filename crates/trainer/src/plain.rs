//! Renders metrics as plain text: one line per logged step and per evaluation.

use std::collections::HashMap;

use burn::train::metric::{MetricDefinition, MetricId};
use burn::train::renderer::{
    EvaluationName, EvaluationProgress, MetricState, MetricsRenderer, MetricsRendererEvaluation,
    MetricsRendererTraining, ProgressType, TrainingProgress,
};

use crate::metrics::renderers as metrics;

/// A renderer for Burn's learner when there is no terminal.
pub struct PlainRenderer {
    steps: usize,
    say: fn(&str),
    names: HashMap<MetricId, String>,
    /// The names of the metrics of hooks and of the objective, in alphabetical order.
    added: Vec<String>,
    /// The newest values by metric name.
    train: HashMap<String, String>,
    valid: HashMap<String, String>,
}

impl PlainRenderer {
    /// Creates a renderer for a run of `steps` steps, which passes each line to `say`.
    pub fn new(steps: usize, say: fn(&str)) -> Self {
        Self {
            steps,
            say,
            names: HashMap::new(),
            added: Vec::new(),
            train: HashMap::new(),
            valid: HashMap::new(),
        }
    }

    /// Formats the perplexity, if the run has one.
    fn perplexity(values: &HashMap<String, String>) -> String {
        let value = values.get(metrics::PERPLEXITY);
        value.map_or_else(String::new, |value| format!("  perplexity {value}"))
    }

    /// Formats the metrics of hooks.
    fn added(&self, values: &HashMap<String, String>) -> String {
        let known = self
            .added
            .iter()
            .filter_map(|name| values.get_key_value(name));
        known
            .map(|(name, value)| format!("  {} {value}", name.to_lowercase()))
            .collect()
    }

    fn line(&self, progress: &TrainingProgress, text: std::fmt::Arguments<'_>) {
        let step = progress.iteration.unwrap_or(0);
        let width = self.steps.to_string().len();
        (self.say)(&format!("step {step:>width$}/{}  {text}", self.steps));
    }
}

/// The name of a metric and its value.
fn named(names: &HashMap<MetricId, String>, state: MetricState) -> Option<(String, String)> {
    let (MetricState::Generic(entry) | MetricState::Numeric(entry, _)) = state;
    let name = names.get(&entry.metric_id)?;
    Some((name.clone(), entry.serialized_entry.formatted))
}

fn value<'a>(values: &'a HashMap<String, String>, name: &str) -> &'a str {
    values.get(name).map_or("-", String::as_str)
}

impl MetricsRendererTraining for PlainRenderer {
    fn update_train(&mut self, state: MetricState) {
        self.train.extend(named(&self.names, state));
    }

    fn update_valid(&mut self, state: MetricState) {
        self.valid.extend(named(&self.names, state));
    }

    fn render_train(&mut self, progress: TrainingProgress, _indicators: Vec<ProgressType>) {
        let figure = |name| value(&self.train, name);
        self.line(
            &progress,
            format_args!(
                "loss {}{}  rate {}  gradient norm {}  {} tokens/s{}  {} left",
                figure(metrics::LOSS),
                Self::perplexity(&self.train),
                figure(metrics::LEARNING_RATE),
                figure(metrics::GRADIENT_NORM),
                figure(metrics::TOKENS_PER_SECOND),
                self.added(&self.train),
                figure(metrics::TIME_LEFT),
            ),
        );
    }

    fn render_valid(&mut self, progress: TrainingProgress, _indicators: Vec<ProgressType>) {
        let figure = |name| value(&self.valid, name);
        self.line(
            &progress,
            format_args!(
                "validation loss {}{}{}{}",
                figure(metrics::LOSS),
                Self::perplexity(&self.valid),
                self.added(&self.valid),
                self.valid.get(metrics::DATASETS).map_or("", String::as_str),
            ),
        );
    }
}

impl MetricsRendererEvaluation for PlainRenderer {
    fn update_test(&mut self, _name: EvaluationName, _state: MetricState) {}

    fn render_test(&mut self, _progress: EvaluationProgress, _indicators: Vec<ProgressType>) {}
}

impl MetricsRenderer for PlainRenderer {
    fn manual_close(&mut self) {}

    fn register_metric(&mut self, definition: MetricDefinition) {
        let name = &definition.name;
        if !metrics::NAMED.contains(&name.as_str()) && !self.added.contains(name) {
            // Burn registers metrics in any order.
            self.added.push(name.clone());
            self.added.sort();
        }
        self.names.insert(definition.metric_id, definition.name);
    }
}
