//! Hooks: their calls, and the metrics that they record.

use std::fs;
use std::sync::{Arc, Mutex};

use crate::common::{TestFolder, options, train};
use burn::backend::{Autodiff, Flex};
use emberlm_trainer::events::{self, Ending, Event};
use emberlm_trainer::hooks::{
    CheckpointEnd, EvaluationEnd, Hook, HookContext, HookError, RunBegin, RunEnd, StepEnd,
    StepResult,
};
use emberlm_trainer::metrics::{Aggregation, Metric, Phase};
use emberlm_trainer::{Interrupter, RunConfig, RunResult, RunStart, TrainError, Training};

type B = Autodiff<Flex>;

/// The calls of a hook, one line each.
type Calls = Arc<Mutex<Vec<String>>>;

/// A hook that logs its calls and records metrics.
struct Noting {
    calls: Calls,
    metrics: Vec<Metric>,
    /// Stop the run after this step.
    stop_after: Option<usize>,
    /// Fail at this step.
    fail_at: Option<usize>,
}

impl Noting {
    fn new(metrics: Vec<Metric>) -> (Self, Calls) {
        let calls = Calls::default();
        let hook = Self {
            calls: calls.clone(),
            metrics,
            stop_after: None,
            fail_at: None,
        };
        (hook, calls)
    }

    fn note(&self, call: String) {
        self.calls.lock().unwrap().push(call);
    }
}

fn declared() -> Vec<Metric> {
    vec![
        Metric::new("step_sum", "Sum of steps").aggregation(Aggregation::Sum),
        Metric::new("evaluations", "Evaluations").phase(Phase::Validation),
    ]
}

impl Hook for Noting {
    fn metrics(&self) -> Vec<Metric> {
        self.metrics.clone()
    }

    fn on_start(&mut self, start: &RunBegin<'_>) -> Result<(), HookError> {
        assert!(start.run.join("config.toml").exists());
        self.note(format!("start {} {}", start.step, start.steps));
        Ok(())
    }

    fn on_step(
        &mut self,
        step: &StepEnd<'_>,
        context: &mut HookContext<'_>,
    ) -> Result<(), HookError> {
        let StepResult::Updated(metrics) = step.result else {
            return Err("a step was skipped".into());
        };
        assert!(metrics.loss.is_finite() && step.steps == 24);
        self.note(format!("step {}", step.step));
        context.record("step_sum", step.step as f64);
        if self.stop_after == Some(step.step) {
            context.stop();
        }
        match self.fail_at == Some(step.step) {
            true => Err("no more of this".into()),
            false => Ok(()),
        }
    }

    fn on_evaluation(
        &mut self,
        evaluation: &EvaluationEnd<'_>,
        context: &mut HookContext<'_>,
    ) -> Result<(), HookError> {
        let EvaluationEnd { step, is_best, .. } = evaluation;
        self.note(format!("evaluation {step} {is_best}"));
        context.record("evaluations", *step as f64 / 12.0);
        Ok(())
    }

    fn on_checkpoint(&mut self, checkpoint: &CheckpointEnd<'_>) -> Result<(), HookError> {
        assert!(
            checkpoint
                .result
                .unwrap()
                .join("model.safetensors")
                .exists()
        );
        self.note(format!("checkpoint {}", checkpoint.step));
        Ok(())
    }

    fn on_end(&mut self, end: &RunEnd) -> Result<(), HookError> {
        self.note(format!("end {} {:?}", end.step, end.ending));
        Ok(())
    }
}

fn config(place: &TestFolder) -> RunConfig {
    let mut config = place.config();
    config.train.log_interval = 10;
    config.train.evaluation.interval = 12;
    config.train.checkpoints.interval = 12;
    config
}

fn run(place: &TestFolder, hook: Noting) -> Result<RunResult, TrainError> {
    let mut options = options(Interrupter::new());
    options.tensorboard = true;
    options.hooks = vec![Box::new(hook)];
    let start = RunStart::New(place.path("run"));
    Training::<B>::new(config(place), start)
        .options(options)
        .run()
}

#[test]
fn hooks_are_called_and_their_metrics_are_logged() {
    let place = TestFolder::new(0);
    let (hook, calls) = Noting::new(declared());
    run(&place, hook).unwrap();
    let calls = calls.lock().unwrap().clone();
    let of = |kind: &str| -> Vec<String> {
        let calls = calls.iter().filter(|call| call.starts_with(kind));
        calls.cloned().collect()
    };
    assert_eq!(calls[0], "start 0 24");
    assert_eq!(of("step").len(), 24);
    assert_eq!(
        of("evaluation"),
        ["evaluation 12 true", "evaluation 24 true"]
    );
    assert_eq!(of("checkpoint"), ["checkpoint 12", "checkpoint 24"]);
    assert_eq!(of("end"), ["end 24 Finished"]);

    let events = events::read(&place.path("run")).unwrap().events;
    let readings = |name: &str| -> Vec<(usize, f64)> {
        let read = |event: &Event| {
            let (_, found) = event.readings()?;
            let (_, value) = found.into_iter().find(|(of, _)| *of == name)?;
            Some((event.step(), value))
        };
        events.iter().filter_map(read).collect()
    };
    // Log lines follow steps 1, 10, 20 and 24. Each has the sum since the previous line.
    let sums = [(1, 1.0), (10, 54.0), (20, 155.0), (24, 90.0)];
    assert_eq!(readings("step_sum"), sums);
    assert_eq!(readings("evaluations"), [(12, 1.0), (24, 2.0)]);
    let begun = events.iter().find_map(|event| match event {
        Event::Begun { metrics, .. } => Some(metrics.clone()),
        _ => None,
    });
    let names: Vec<_> = begun
        .unwrap()
        .into_iter()
        .map(|m| (m.name, m.phase))
        .collect();
    let expected = [
        ("step_sum".into(), Phase::Training),
        ("evaluations".into(), Phase::Validation),
    ];
    assert_eq!(names, expected);
    let folder = fs::read_dir(place.path("run/tensorboard")).unwrap();
    let file = fs::read(folder.last().unwrap().unwrap().path()).unwrap();
    for tag in ["train/step_sum", "validation/evaluations", "train/loss"] {
        let found = file.windows(tag.len()).any(|bytes| bytes == tag.as_bytes());
        assert!(found, "{tag}");
    }
}

#[test]
fn hooks_do_not_change_what_a_run_computes() {
    let place = TestFolder::new(0);
    train::<B>(&place, config(&place), "without").unwrap();
    let (hook, _) = Noting::new(declared());
    run(&place, hook).unwrap();
    let weights = |run: &str| {
        fs::read(
            place
                .path(run)
                .join("checkpoints/step-00000024/model.safetensors"),
        )
        .unwrap()
    };
    assert!(weights("without") == weights("run"));
}

#[test]
fn a_hook_stops_a_run_with_a_checkpoint() {
    let place = TestFolder::new(0);
    let (mut hook, calls) = Noting::new(declared());
    hook.stop_after = Some(5);
    let result = run(&place, hook).unwrap();
    assert!(result.interrupted && result.state.step == 5);
    assert!(result.checkpoint.unwrap().ends_with("step-00000005"));
    let last = calls.lock().unwrap().last().cloned().unwrap();
    assert_eq!(last, format!("end 5 {:?}", Ending::Interrupted));
}

#[test]
fn a_hook_that_fails_ends_the_run_with_a_checkpoint() {
    let place = TestFolder::new(0);
    let (mut hook, _) = Noting::new(declared());
    hook.fail_at = Some(3);
    let error = run(&place, hook).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a hook of the run failed: no more of this"
    );
    assert!(place.path("run/checkpoints/step-00000003").exists());
}

#[test]
fn unrecordable_metrics_are_named() {
    let refused = |metrics: Vec<Metric>| {
        let place = TestFolder::new(0);
        run(&place, Noting::new(metrics).0).unwrap_err().to_string()
    };
    let twice = [declared(), declared()].concat();
    assert_eq!(
        refused(twice),
        "the metric `step_sum`: it is declared twice"
    );
    let built_in = vec![Metric::new("loss", "Loss")];
    assert_eq!(
        refused(built_in),
        "the metric `loss`: every run has a metric of that name"
    );
    assert_eq!(
        refused(Vec::new()),
        "the metric `step_sum`: no hook declares it for this phase"
    );
}
