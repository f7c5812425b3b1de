//! Calls a run's hooks, and keeps what they record until it is logged.

use std::collections::BTreeMap;

use burn::train::Interrupter;

use super::{CheckpointEnd, EvaluationEnd, Hook, HookError, RunBegin, RunEnd, StepEnd};
use crate::error::TrainError;
use crate::metrics::{Accumulator, Metric, MetricValues, Phase};

/// The hooks of a run.
pub(crate) struct HookList {
    hooks: Vec<Box<dyn Hook>>,
    metrics: Vec<Metric>,
    interrupter: Interrupter,
    /// Readings after steps, since the last line of the log.
    pending: BTreeMap<String, Accumulator>,
    /// The first error, which ends the run.
    failure: Option<TrainError>,
}

/// The run, as a hook acts on it.
pub struct HookContext<'a> {
    metrics: &'a [Metric],
    phase: Phase,
    recorded: Vec<(String, f64)>,
    undeclared: Option<String>,
    interrupter: &'a Interrupter,
}

impl HookContext<'_> {
    /// Records a reading of one of the hooks' metrics. A name that no hook declares for this phase ends the run with an
    /// error.
    pub fn record(&mut self, name: &str, value: f64) {
        let declared = |metric: &&Metric| metric.name == name && metric.phase.includes(self.phase);
        match self.metrics.iter().find(declared) {
            Some(_) => self.recorded.push((name.to_owned(), value)),
            None => self.undeclared = Some(name.to_owned()),
        }
    }

    /// Stops the run before its next step, with a checkpoint, as Ctrl-C does. With several processes each must be
    /// stopped at the same step.
    pub fn stop(&mut self) {
        self.interrupter.stop(Some("stopped by a hook"));
    }
}

impl HookList {
    /// The hooks of a run that `interrupter` stops.
    ///
    /// # Errors
    /// A metric's name is not allowed, or is declared twice.
    pub(crate) fn new(
        hooks: Vec<Box<dyn Hook>>,
        interrupter: Interrupter,
    ) -> Result<Self, TrainError> {
        let mut metrics: Vec<Metric> = Vec::new();
        for mut metric in hooks.iter().flat_map(|hook| hook.metrics()) {
            let twice = metrics.iter().any(|other| other.name == metric.name);
            let refused = match twice {
                true => Err("two hooks declare it"),
                false => metric.check(),
            };
            if let Err(rule) = refused {
                let name = metric.name.into_owned();
                return Err(TrainError::Metric { name, rule });
            }
            metric.tab.get_or_insert_with(|| metric.title.clone());
            metrics.push(metric);
        }
        Ok(Self {
            hooks,
            metrics,
            interrupter,
            pending: BTreeMap::new(),
            failure: None,
        })
    }

    /// The metrics that the hooks declare.
    pub(crate) fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    /// At the beginning of the run.
    pub(crate) fn on_start(&mut self, start: &RunBegin<'_>) {
        self.call(Phase::Training, |hook, _| hook.on_start(start));
    }

    /// After a step.
    pub(crate) fn on_step(&mut self, step: &StepEnd<'_>) {
        let recorded = self.call(Phase::Training, |hook, context| hook.on_step(step, context));
        for (name, value) in recorded {
            let declared = self.metrics.iter().find(|metric| metric.name == name);
            let aggregation = declared
                .map(|metric| metric.aggregation)
                .unwrap_or_default();
            let accumulator = self.pending.entry(name);
            accumulator
                .or_insert_with(|| Accumulator::new(aggregation))
                .add(value);
        }
    }

    /// After an evaluation. Returns what the hooks recorded.
    pub(crate) fn on_evaluation(&mut self, evaluation: &EvaluationEnd<'_>) -> MetricValues {
        let mut values = MetricValues::default();
        let recorded = self.call(Phase::Validation, |hook, context| {
            hook.on_evaluation(evaluation, context)
        });
        for (name, value) in recorded {
            values.insert(&name, value);
        }
        values
    }

    /// After a checkpoint.
    pub(crate) fn on_checkpoint(&mut self, checkpoint: &CheckpointEnd<'_>) {
        self.call(Phase::Training, |hook, _| hook.on_checkpoint(checkpoint));
    }

    /// At the end of the run.
    pub(crate) fn on_end(&mut self, end: &RunEnd) {
        self.call(Phase::Training, |hook, _| hook.on_end(end));
    }

    /// The readings after steps since the last line of the log, aggregated.
    pub(crate) fn take_readings(&mut self) -> MetricValues {
        let mut values = MetricValues::default();
        for (name, accumulator) in &mut self.pending {
            if let Some(value) = accumulator.take() {
                values.insert(name, value);
            }
        }
        values
    }

    /// The first error of a hook, once.
    ///
    /// # Errors
    /// A hook failed, or recorded a metric that is not declared.
    pub(crate) fn check(&mut self) -> Result<(), TrainError> {
        self.failure.take().map_or(Ok(()), Err)
    }

    fn call(
        &mut self,
        phase: Phase,
        one: impl Fn(&mut dyn Hook, &mut HookContext<'_>) -> Result<(), HookError>,
    ) -> Vec<(String, f64)> {
        let mut context = HookContext {
            metrics: &self.metrics,
            phase,
            recorded: Vec::new(),
            undeclared: None,
            interrupter: &self.interrupter,
        };
        for hook in &mut self.hooks {
            let result = one(&mut **hook, &mut context);
            let failure = match (result, context.undeclared.take()) {
                (Err(source), _) => TrainError::Hook(source),
                (Ok(()), Some(name)) => TrainError::Metric {
                    name,
                    rule: "no hook declares it for this phase",
                },
                (Ok(()), None) => continue,
            };
            self.failure.get_or_insert(failure);
        }
        context.recorded
    }
}
