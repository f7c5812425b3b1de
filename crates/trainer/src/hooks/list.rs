//! Calls a run's hooks and collects the values that they record until they are logged.

use std::collections::BTreeMap;

use burn::train::Interrupter;

use super::{CheckpointEnd, EvaluationEnd, Hook, HookError, RunBegin, RunEnd, StepEnd};
use crate::error::TrainError;
use crate::report::metrics::{Accumulator, Metric, MetricValues, Phase};

/// The hooks of a run.
pub(crate) struct HookList {
    hooks: Vec<Box<dyn Hook>>,
    metrics: Vec<Metric>,
    interrupter: Interrupter,
    /// Values recorded by `on_step` since the last log line.
    pending: BTreeMap<String, Accumulator>,
    /// The first error, which ends the run.
    failure: Option<TrainError>,
}

/// The interface through which a hook acts on the run.
pub struct HookContext<'a> {
    metrics: &'a [Metric],
    phase: Phase,
    recorded: Vec<(String, f64)>,
    undeclared: Option<String>,
    interrupter: &'a Interrupter,
}

impl HookContext<'_> {
    /// Records a value of a declared metric. The run ends with an error if no hook declares `name` for this
    /// phase.
    pub fn record(&mut self, name: &str, value: f64) {
        let declared = |metric: &&Metric| metric.name == name && metric.phase.includes(self.phase);
        match self.metrics.iter().find(declared) {
            Some(_) => self.recorded.push((name.to_owned(), value)),
            None => self.undeclared = Some(name.to_owned()),
        }
    }

    /// Stops the run before its next step and saves a checkpoint, like Ctrl-C. With several processes, every
    /// one must be stopped at the same step.
    pub fn stop(&mut self) {
        self.interrupter.stop(Some("stopped by a hook"));
    }
}

impl HookList {
    /// Creates the list. The metrics of the run's objective are declared before those of the hooks. Hooks stop the run
    /// through `interrupter`.
    ///
    /// # Errors
    /// A metric's name is invalid or declared twice.
    pub(crate) fn new(
        hooks: Vec<Box<dyn Hook>>,
        of_objective: Vec<Metric>,
        interrupter: Interrupter,
    ) -> Result<Self, TrainError> {
        let mut metrics: Vec<Metric> = Vec::new();
        let of_hooks = hooks.iter().flat_map(|hook| hook.metrics());
        for mut metric in of_objective.into_iter().chain(of_hooks) {
            let twice = metrics.iter().any(|other| other.name == metric.name);
            let refused = match twice {
                true => Err("it is declared twice"),
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

    /// The metrics of the run's objective and of the hooks.
    pub(crate) fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    /// Calls [`Hook::on_start`].
    pub(crate) fn on_start(&mut self, start: &RunBegin<'_>) {
        self.call(Phase::Training, |hook, _| hook.on_start(start));
    }

    /// Calls [`Hook::on_step`].
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

    /// Calls [`Hook::on_evaluation`]. Returns the recorded values.
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

    /// Calls [`Hook::on_checkpoint`].
    pub(crate) fn on_checkpoint(&mut self, checkpoint: &CheckpointEnd<'_>) {
        self.call(Phase::Training, |hook, _| hook.on_checkpoint(checkpoint));
    }

    /// Calls [`Hook::on_end`].
    pub(crate) fn on_end(&mut self, end: &RunEnd) {
        self.call(Phase::Training, |hook, _| hook.on_end(end));
    }

    /// Takes the values recorded by `on_step` since the last log line, aggregated.
    pub(crate) fn take_readings(&mut self) -> MetricValues {
        let mut values = MetricValues::default();
        for (name, accumulator) in &mut self.pending {
            if let Some(value) = accumulator.take() {
                values.insert(name, value);
            }
        }
        values
    }

    /// Takes the first error of a hook.
    ///
    /// # Errors
    /// A hook failed, or recorded an undeclared metric.
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
