//! The duties of rank 0: it logs, samples and saves, and records evaluations.

use std::path::PathBuf;
use std::sync::Arc;

use burn::module::AutodiffModule;
use burn::tensor::Device;
use emberlm_data::{Floor, Tokenizer};
use emberlm_kernels::TrainingBackend;

use super::due::DueActions;
use super::validate::Evaluator;
use crate::checkpoint::{About, Contents, Keep, State};
use crate::error::TrainError;
use crate::hooks::{RunBegin, RunEnd, StepEnd, StepResult};
use crate::objective::TrainSource;
use crate::objective::model::TrainingModel;
use crate::report::events::{Ending, Event, now};
use crate::report::metrics::ProgressDisplay;
use crate::report::pace::Pace;
use crate::run::recorder::Recorder;
use crate::step::engine::{SkippedStep, StepEngine, StepOutcome, StepReport};

/// The state of rank 0 other than the engine.
pub(crate) struct RankZero<B: TrainingBackend> {
    /// Shows the run's progress. A dashboard restores the terminal when it is dropped.
    pub(crate) display: Box<dyn ProgressDisplay>,
    /// The run's directory.
    pub(crate) run: PathBuf,
    /// The model and its tokenizer, for checkpoints.
    pub(crate) about: Arc<About>,
    /// The tokenizer that samples are decoded with.
    pub(crate) tokenizer: Tokenizer,
    /// The training data, for the positions of a step.
    pub(crate) source: TrainSource,
    /// The events that a resumed run shows before it continues.
    pub(crate) past: Vec<Event>,
    /// Tokens per sequence.
    pub(crate) seq_len: usize,
    pub(crate) device: Device<B>,
    pub(crate) recorder: Recorder,
    pub(crate) pace: Pace,
    /// The loss of a uniform distribution over all tokens or labels, if the loss is a cross-entropy.
    pub(crate) uniform_loss: Option<f64>,
    /// The newest sample.
    pub(crate) sample: Option<String>,
    /// The newest gradient norms by layer as bars.
    pub(crate) bars: String,
}

impl<B: TrainingBackend> RankZero<B> {
    /// Shows the earlier events of a resumed run, and records the beginning.
    pub(super) fn begin(&mut self, engine: &StepEngine<B>, state: &State, floor: Option<&Floor>) {
        let config = engine.config();
        self.replay();
        self.recorder.record(&Event::Begun {
            time: now(),
            step: engine.position().step,
            steps: config.steps,
            backend: state.backend.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            floor: floor.map(|floor| floor.nats_per_token),
            uniform_loss: self.uniform_loss,
            metrics: self.recorder.hooks.metrics().to_vec(),
        });
        self.recorder.hooks.on_start(&RunBegin {
            run: &self.run,
            step: engine.position().step,
            steps: config.steps,
        });
        self.pace.begin();
    }

    /// Counts the time of completed steps, and reports skipped ones.
    pub(super) fn report_judged(&mut self, report: &StepReport, steps: usize) {
        self.pace.add(report.positions, report.seconds);
        let diverged = report.outcome == StepOutcome::Diverged;
        let last = report.skipped.len();
        for (number, skipped) in (1..).zip(&report.skipped) {
            self.recorder.record(&skipped_event(skipped));
            self.recorder.hooks.on_step(&StepEnd {
                step: skipped.step,
                steps,
                result: StepResult::Skipped {
                    reason: &skipped.reason,
                },
            });
            // The error that ends the run has the last reason.
            if !(diverged && number == last) {
                // A few overflows are expected while the loss scale adapts.
                let grade = if skipped.expected { "" } else { "warning: " };
                let SkippedStep { step, reason, .. } = skipped;
                self.recorder
                    .messages
                    .say(format!("{grade}step {step} was skipped: {reason}"));
            }
        }
    }

    /// The newest checkpoint, after the one in progress.
    pub(super) fn last_checkpoint(&mut self) -> Option<PathBuf> {
        self.recorder.wait();
        self.recorder.newest.clone()
    }

    /// Logs, evaluates and saves at the configured intervals.
    pub(super) fn after_step(
        &mut self,
        evaluator: Evaluator<'_, B>,
        model: &TrainingModel<B>,
        state: &mut State,
        report: &StepReport,
    ) -> Result<(), TrainError> {
        let engine = evaluator.engine();
        self.recorder.poll();
        let metrics = match report.outcome {
            StepOutcome::Updated(metrics) => Some(metrics),
            StepOutcome::Skipped => None,
            StepOutcome::Deferred | StepOutcome::Abandoned | StepOutcome::Diverged => {
                return Ok(());
            }
        };
        let config = engine.config();
        let step = engine.position().step;
        let DueActions {
            last,
            log,
            evaluate,
            save,
            norms,
        } = DueActions::after(step, config);
        if log || evaluate || save || norms {
            self.recorder.check()?;
        }
        if let Some(metrics) = metrics {
            self.recorder.hooks.on_step(&StepEnd {
                step,
                steps: config.steps,
                result: StepResult::Updated(metrics),
            });
        }
        if let Some(norms) = engine.norms().filter(|_| metrics.is_some()) {
            self.record_norms(step, norms);
        }
        if let Some(metrics) = metrics.filter(|_| log) {
            self.log(engine, metrics, state);
        }
        let mut save = save || (self.recorder.retry_due && log);
        if evaluate {
            let better = self.validate(evaluator, model, state)?;
            save |= better && config.checkpoints.keep_best;
            if B::is_asynchronous() {
                // Evaluation and training use device memory differently.
                B::memory_cleanup(&self.device);
            }
        }
        // The checkpoint of the last step is written at the end, like that of an interrupted run.
        let last = last || config.evaluation.ends_early(state.evaluations_since_best);
        let is_due = log || evaluate || save;
        let checkpoints = &config.checkpoints;
        let temporary = is_due && !save && self.recorder.is_temporary_due(evaluate, checkpoints);
        let save = (save || temporary) && !last;
        if is_due && engine.agree_to_save(save)? {
            let state = State {
                temporary,
                ..super::position(state, engine)
            };
            let contents = self.contents(engine, model, state);
            begin_checkpoint(engine, &mut self.recorder, &contents)?;
            engine.agree_to_save(false)?;
        }
        self.recorder.hooks.check()
    }

    /// Writes the last checkpoint and records the end, which is `ending` unless there was an error. Returns `result`, or the
    /// error of writing the end.
    pub(super) fn end(
        &mut self,
        engine: &StepEngine<B>,
        model: &TrainingModel<B>,
        state: State,
        is_new: bool,
        ending: Ending,
        result: Result<(), TrainError>,
    ) -> Result<(), TrainError> {
        let step = state.step;
        let saved = match &result {
            // The weights caused the skipped steps or were trained on damaged data: the previous checkpoint is better.
            Err(TrainError::Diverged { .. } | TrainError::DamagedData { .. }) => Ok(()),
            // The user chose to keep the newest checkpoint.
            Err(TrainError::Discarded { .. }) => Ok(()),
            // Another process owns the directory now.
            Err(TrainError::RunReplaced { .. } | TrainError::LockReplaced { .. }) => Ok(()),
            // Nothing has changed since the last checkpoint.
            _ if !is_new => Ok(()),
            // The other ranks do not expect to write their state.
            Err(_) if engine.rank().world_size() > 1 => Ok(()),
            _ => self
                .recorder
                .check()
                .and_then(|()| self.save_last(engine, model, state)),
        };
        let result = result.and(saved);
        // A checkpoint in progress is never half visible. Waiting completes it.
        self.recorder.wait();
        let result = result.and(self.recorder.check());
        let ending = match &result {
            Err(TrainError::Discarded { .. }) => Ending::Interrupted,
            Err(_) => Ending::Failed,
            Ok(()) => ending,
        };
        self.recorder.record(&Event::Ended {
            time: now(),
            step,
            how: ending,
        });
        self.recorder.hooks.on_end(&RunEnd { step, ending });
        let result = result.and(self.recorder.hooks.check());
        result.and(self.recorder.flush())
    }

    /// Writes a checkpoint and waits for it.
    pub(super) fn save_last(
        &mut self,
        engine: &StepEngine<B>,
        model: &TrainingModel<B>,
        state: State,
    ) -> Result<(), TrainError> {
        let contents = self.contents(engine, model, state);
        let saved = self.recorder.save_last(contents.state.step, |recorder| {
            engine.agree_to_save(true)?;
            begin_checkpoint(engine, recorder, &contents)
        });
        engine.agree_to_save(false)?;
        saved
    }

    /// The contents of a checkpoint.
    fn contents(
        &self,
        engine: &StepEngine<B>,
        model: &TrainingModel<B>,
        state: State,
    ) -> Contents<B::InnerBackend> {
        Contents {
            model: engine.evaluated(model),
            training: engine.averages().then(|| model.valid()),
            about: Arc::clone(&self.about),
            state,
        }
    }
}

/// Starts writing a checkpoint, after the optimizer's state of all ranks.
fn begin_checkpoint<B: TrainingBackend>(
    engine: &StepEngine<B>,
    recorder: &mut Recorder,
    contents: &Contents<B::InnerBackend>,
) -> Result<(), TrainError> {
    // The checkpoint before may have the same directory.
    recorder.wait();
    match engine.optimizer_state()? {
        Some(Ok(optimizer)) => {
            let keep = keep(engine, &contents.state);
            recorder.save(optimizer, contents.clone(), keep);
        }
        Some(Err(error)) => recorder.fail(contents.state.step, error),
        None => {}
    }
    Ok(())
}

/// The checkpoints to keep.
fn keep<B: TrainingBackend>(engine: &StepEngine<B>, state: &State) -> Keep {
    let config = &engine.config().checkpoints;
    let best = state.best.filter(|_| config.keep_best);
    Keep {
        last: config.keep_last,
        best: best.map(|best| best.step),
    }
}

fn skipped_event(skipped: &SkippedStep) -> Event {
    let number = |x: f64| x.is_finite().then_some(x);
    Event::Skipped {
        step: skipped.step,
        loss: number(skipped.loss),
        gradient_norm: number(skipped.gradient_norm),
        reason: skipped.reason.clone(),
    }
}
