//! The driver of a run: it takes micro-batches from the loader, trains steps with the `engine`, and performs the
//! actions that are due after each step.
//!
//! ```text
//! every log_interval               figures ─► events.jsonl, display         ┐
//! every norms_interval             norms by layer ─► events.jsonl           │
//! every evaluation.interval        validation loss, tasks (all ranks), sample │ rank 0
//! every checkpoints.interval       a checkpoint, also at the end of the     │
//!                                  run and on interruption                  ┘
//! ```
//!
//! Every rank has a driver, and computes its share of evaluations. Only the driver of rank 0 has a [`RankZero`], which logs,
//! samples and saves.

use std::path::PathBuf;
use std::sync::Arc;

use emberlm_data::{DataError, Floor};
use emberlm_kernels::TrainingBackend;

use crate::checkpoint::State;
use crate::data::file_check::FileCheck;
use crate::error::TrainError;
use crate::evaluate::validation::Validation;
use crate::objective::Rollouts;
use crate::objective::model::{TokenBatch, TrainingModel};
use crate::report::events::Ending;
use crate::run::tasks::RunTasks;
use crate::step::engine::{StepBatches, StepEngine, StepOutcome, StepReport};
use crate::stop::StopSignal;

mod due;
mod peer;
mod rank_zero;
mod show;
#[cfg(test)]
mod tests;
mod validate;

use due::DueActions;
pub(crate) use rank_zero::RankZero;
use validate::Evaluator;

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunResult {
    /// The run's directory.
    pub run: PathBuf,
    /// The final position.
    pub state: State,
    /// The newest sample.
    pub sample: Option<String>,
    /// The newest checkpoint.
    pub checkpoint: Option<PathBuf>,
    /// True if the run was stopped before its last step.
    pub interrupted: bool,
    /// True if the run ended before its last step because the validation loss did not improve.
    pub stopped_early: bool,
    /// The lowest possible validation loss, if known.
    pub floor: Option<Floor>,
    /// True if the model has the chat template of its training data.
    pub chats: bool,
}

/// The micro-batches of this rank, in the order of the run.
type Batches<'a, B> = dyn Iterator<Item = Result<TokenBatch<B>, DataError>> + 'a;

/// The loop over a run's steps, on one rank.
pub(crate) struct Driver<B: TrainingBackend> {
    run: PathBuf,
    engine: StepEngine<B>,
    /// The position of the run, except for the engine's part.
    state: State,
    floor: Option<Floor>,
    /// The check of files without block hashes.
    file_check: FileCheck,
    /// Samples the sequences of steps, if the objective learns from rewards.
    rollouts: Option<Rollouts<B::InnerBackend>>,
    validation: Validation,
    tasks: Option<Arc<RunTasks>>,
    rank_zero: Option<RankZero<B>>,
    /// Writes a checkpoint before the first step.
    saves_first: bool,
    stop: StopSignal,
    interrupted: bool,
}

impl<B: TrainingBackend> Driver<B> {
    /// A driver at the position of `state`. `rank_zero` is present only on rank 0. All ranks evaluate on `validation`.
    pub(crate) fn new(
        run: PathBuf,
        engine: StepEngine<B>,
        state: State,
        floor: Option<Floor>,
        file_check: FileCheck,
        validation: Validation,
        rank_zero: Option<RankZero<B>>,
    ) -> Self {
        Self {
            run,
            engine,
            state,
            floor,
            file_check,
            rollouts: None,
            validation,
            tasks: None,
            rank_zero,
            saves_first: false,
            stop: StopSignal::default(),
            interrupted: false,
        }
    }

    /// Samples the sequences of steps, instead of taking them from the loader.
    pub(crate) fn with_rollouts(mut self, rollouts: Option<Rollouts<B::InnerBackend>>) -> Self {
        self.rollouts = rollouts;
        self
    }

    /// Also evaluates tasks at each evaluation.
    pub(crate) fn with_tasks(mut self, tasks: Option<Arc<RunTasks>>) -> Self {
        self.tasks = tasks;
        self
    }

    /// Sets that a checkpoint is written before the first step, so that a fork does not depend on the run that it starts
    /// from.
    pub(crate) fn saving_first(mut self, saves_first: bool) -> Self {
        self.saves_first = saves_first;
        self
    }

    /// Sets a signal that ends the run.
    pub(crate) fn stopped_by(mut self, stop: StopSignal) -> Self {
        self.engine = self.engine.stopped_by(stop.clone());
        self.stop = stop;
        self
    }

    /// Trains to the last step, or until an interruption or an error. Returns the model and the result.
    pub(crate) fn run(
        mut self,
        mut model: TrainingModel<B>,
        batches: &mut Batches<'_, B>,
    ) -> (TrainingModel<B>, Result<RunResult, TrainError>) {
        let begun_at = self.step();
        let evaluates_first = self.state.evaluation_due;
        if let Some(rank_zero) = &mut self.rank_zero {
            rank_zero.begin(&self.engine, &self.state, self.floor.as_ref());
        }
        let mut result = self.save_first(&model);
        if result.is_ok() {
            result = self.evaluate_due(&model);
        }
        if result.is_ok() {
            (model, result) = self.steps(model, batches);
        }
        let is_new = evaluates_first || self.step() != begun_at;
        let ending = self.ending();
        match &mut self.rank_zero {
            Some(rank_zero) => {
                let state = position(&self.state, &self.engine);
                result = rank_zero.end(&self.engine, &model, state, is_new, ending, result);
            }
            None if result.is_ok() && is_new => result = self.save_as_peer(),
            None => {}
        }
        let result = result.map(|()| self.run_result());
        (model, result)
    }

    fn run_result(&self) -> RunResult {
        let rank_zero = self.rank_zero.as_ref();
        RunResult {
            run: self.run.clone(),
            state: position(&self.state, &self.engine),
            sample: rank_zero.and_then(|rank_zero| rank_zero.sample.clone()),
            checkpoint: rank_zero.and_then(|rank_zero| rank_zero.recorder.newest.clone()),
            interrupted: self.interrupted,
            stopped_early: self.ending() == Ending::EarlyStopped,
            floor: self.floor.clone(),
            chats: rank_zero
                .is_some_and(|rank_zero| rank_zero.about.description.chat_template.is_some()),
        }
    }

    /// Steps with a known outcome.
    fn step(&self) -> usize {
        self.engine.position().step
    }

    /// Returns true if the validation loss has not improved for too many evaluations.
    fn ends_early(&self) -> bool {
        let evaluation = &self.engine.config().evaluation;
        evaluation.ends_early(self.state.evaluations_since_best)
    }

    /// Returns true if there is no step to make.
    fn is_done(&self) -> bool {
        self.ends_early() || self.engine.steps_made() >= self.engine.config().steps
    }

    /// The end of a run without an error.
    fn ending(&self) -> Ending {
        let is_last = self.step() >= self.engine.config().steps;
        match (self.interrupted, self.ends_early() && !is_last) {
            (true, _) => Ending::Interrupted,
            (false, true) => Ending::EarlyStopped,
            (false, false) => Ending::Finished,
        }
    }

    fn steps(
        &mut self,
        mut model: TrainingModel<B>,
        batches: &mut Batches<'_, B>,
    ) -> (TrainingModel<B>, Result<(), TrainError>) {
        let begun_at = self.step();
        let damaged = |source| TrainError::DamagedData { source, begun_at };
        let mut made = Ok(());
        while made.is_ok() && !self.is_done() {
            match self.engine.agree_to_stop(&self.stop) {
                Ok(false) => {}
                Ok(true) => {
                    self.interrupted = true;
                    break;
                }
                Err(error) => {
                    made = Err(error.into());
                    break;
                }
            }
            made = self.poll_file_check().map_err(damaged);
            if made.is_ok() {
                (model, made) = self.next(model, batches);
            }
        }
        if made.is_ok() && !self.interrupted {
            made = self.finish_file_check().map_err(damaged);
        }
        made = made.and(self.engine.finish_gather(&model).map_err(TrainError::from));
        // Steps after a step that must be skipped have changed nothing. A resumed run repeats them.
        let report = self.engine.settle();
        let settled = self.report(&report);
        let discarded = match self.interrupted && self.stop.discards() {
            true => Err(self.discarded()),
            false => Ok(()),
        };
        (model, settled.and(made).and(discarded))
    }

    /// Repeats the evaluation that was interrupted when the run was stopped.
    fn evaluate_due(&mut self, model: &TrainingModel<B>) -> Result<(), TrainError> {
        if !self.state.evaluation_due {
            return Ok(());
        }
        match &mut self.rank_zero {
            Some(rank_zero) => {
                let evaluation = Evaluator::new(
                    &self.validation,
                    self.tasks.as_deref(),
                    &self.engine,
                    &self.stop,
                );
                rank_zero
                    .validate(evaluation, model, &mut self.state)
                    .map(drop)
            }
            None => self.evaluate_as_peer(model),
        }
    }

    /// The error of a run that is stopped without a checkpoint.
    fn discarded(&mut self) -> TrainError {
        TrainError::Discarded {
            run: self.run.clone(),
            step: self.step(),
            last: self.rank_zero.as_mut().and_then(RankZero::last_checkpoint),
        }
    }

    /// Trains one step and performs the actions that are due after it.
    fn next(
        &mut self,
        mut model: TrainingModel<B>,
        batches: &mut Batches<'_, B>,
    ) -> (TrainingModel<B>, Result<(), TrainError>) {
        let batches = match self.next_batches(&model, batches) {
            Ok(Some(batches)) => batches,
            Ok(None) => return (model, Ok(())),
            Err(error) => return (model, Err(error)),
        };
        let made = self.engine.steps_made();
        let due = DueActions::after(made + 1, self.engine.config()).any();
        let window = self.engine.config().window_at(made);
        let report;
        (model, report) = self.engine.step(model.with_window(window), batches, due);
        model = model.with_window(None);
        let after = match report {
            Ok(report) => self.after_step(&model, &report),
            Err(error) => Err(error.into()),
        };
        (model, after)
    }

    /// The micro-batches of the next step. `None` if a stop was requested while they were sampled.
    fn next_batches(
        &mut self,
        model: &TrainingModel<B>,
        batches: &mut Batches<'_, B>,
    ) -> Result<Option<StepBatches<B>>, TrainError> {
        if let Some(again) = self.engine.batches_to_recompute() {
            return Ok(Some(again));
        }
        if let Some(rollouts) = &mut self.rollouts {
            let made = self.engine.steps_made();
            let Some(sampled) = rollouts.batches(model, made, self.engine.peers())? else {
                return Ok(None);
            };
            sampled.note.into_iter().for_each(|note| self.note(note));
            return Ok(Some(StepBatches::new(sampled.batches)));
        }
        let (config, made) = (self.engine.config(), self.engine.steps_made());
        // The ranks share the micro-batches evenly.
        let wanted = config.accumulation_at(made) / self.engine.rank().world_size();
        let mut found = batches.take(wanted).collect::<Result<Vec<_>, _>>()?;
        if let Some(seq_len) = config.cut_at(made) {
            found = found.into_iter().map(|batch| batch.cut(seq_len)).collect();
        }
        Ok(Some(StepBatches::new(found)))
    }

    fn after_step(
        &mut self,
        model: &TrainingModel<B>,
        report: &StepReport,
    ) -> Result<(), TrainError> {
        self.report(report)?;
        if let Some(rollouts) = &self.rollouts {
            self.state.rollout = rollouts.kept(self.engine.steps_made());
            *self.state.positions.get_or_insert(0) += report.positions as u64;
        }
        let due = DueActions::after(self.step(), self.engine.config());
        match &mut self.rank_zero {
            Some(rank_zero) => {
                let evaluator = Evaluator::new(
                    &self.validation,
                    self.tasks.as_deref(),
                    &self.engine,
                    &self.stop,
                );
                rank_zero.after_step(evaluator, model, &mut self.state, report)
            }
            None if report.is_judged() && due.may_save() => {
                if due.evaluate {
                    self.evaluate_as_peer(model)?;
                }
                self.save_as_peer()
            }
            None => Ok(()),
        }
    }

    /// Reports the steps that were skipped.
    ///
    /// # Errors
    /// Too many consecutive steps were skipped.
    fn report(&mut self, report: &StepReport) -> Result<(), TrainError> {
        if let Some(rank_zero) = &mut self.rank_zero {
            rank_zero.report_judged(report, self.engine.config().steps);
        }
        match (report.outcome, report.skipped.last()) {
            (StepOutcome::Diverged, Some(last)) => Err(TrainError::Diverged {
                step: last.step,
                skipped: last.in_a_row,
                reason: last.reason.clone(),
                last: self.rank_zero.as_mut().and_then(RankZero::last_checkpoint),
            }),
            _ => Ok(()),
        }
    }

    /// Reports the end of the check of files without block hashes.
    fn poll_file_check(&mut self) -> Result<(), DataError> {
        if let Some(line) = self.file_check.poll()? {
            self.note(line);
        }
        Ok(())
    }

    /// Waits for the check of files without block hashes, unless the run is interrupted.
    fn finish_file_check(&mut self) -> Result<(), DataError> {
        self.poll_file_check()?;
        let left = self.file_check.left();
        if left > 0 {
            self.note(format!(
                "waiting until the last {left} bytes of the data are verified"
            ));
        }
        if let Some(line) = self.file_check.wait(|| self.stop.is_requested())? {
            self.note(line);
        }
        Ok(())
    }

    fn note(&mut self, line: String) {
        if let Some(rank_zero) = &mut self.rank_zero {
            rank_zero.recorder.messages.say(line);
        }
    }
}

/// The position of the run, including the engine's.
fn position<B: TrainingBackend>(state: &State, engine: &StepEngine<B>) -> State {
    let position = engine.position();
    State {
        step: position.step,
        updates: engine.updates(),
        watch: position.watch.clone(),
        loss_scale: position.loss_scale,
        ..state.clone()
    }
}
