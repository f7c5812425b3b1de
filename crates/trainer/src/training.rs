//! The training loop, counted in steps.
//!
//! ```text
//! step:  micro-batch ─► loss ─► gradients ┐ × accumulation, summed (the loss is a mean over the step's targets)
//!        one norm over all gradients ─► go or skip ─► one clip ─► one rate ─► one update
//! every log_interval steps         figures ─► events.jsonl, renderer
//! every eval_interval steps        validation loss and a sample
//! every checkpoint_interval steps  a checkpoint; and at the end, also of an interrupted run
//! ```
//!
//! Where the device works behind the host, a step's loss and norm are not read before its update, which would wait for
//! everything that the device was asked for. A [`Guard`] decides on the device, and the host finds out later what it has
//! decided ([`pending`], [`settle`]): in the steps that something is done with, of which there is the same outcome, to the
//! bit, as if each step had been read.

use std::sync::Arc;
use std::time::Instant;

use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn::train::Interrupter;
use emberlm_data::DataError;
use emberlm_kernels::TrainingBackend;
use emberlm_model::{Decoder, count};

use crate::checkpoint::{Contents, Keep};
use crate::config::TrainConfig;
use crate::ema::Average;
use crate::error::TrainError;
use crate::events::{Ending, Event, now};
use crate::file_check::FileCheck;
use crate::gradients::{compute, read};
use crate::guard::Guard;
use crate::optimizer::Optimizer;
use crate::pace::Pace;
use crate::recorder::Recorder;
use crate::schedule::learning_rate;
use crate::skip::Verdict;
use crate::strategy::{Position, Processor, Progressed, Reads, StepStrategy};
use crate::trainee::{TokenBatch, Trainee};

mod pending;
mod settle;
mod show;
#[cfg(test)]
mod tests;
mod validate;

use pending::{Micro, Pending};

/// What has become of a step.
#[derive(Clone, Copy, Debug)]
enum Found {
    /// Its update was made.
    Taken(Stepped),
    /// It was not.
    Skipped,
    /// It is to be found out, or an earlier step was skipped and it is to be made again.
    Later,
}

/// What a step has found out.
#[derive(Clone, Copy, Debug)]
struct Stepped {
    /// The mean loss over the step's targets.
    loss: f64,
    /// The norm of all gradients before clipping.
    norm: f64,
    rate: f64,
}

/// What there is to do after a step.
#[derive(Clone, Copy, Debug)]
struct Due {
    last: bool,
    logged: bool,
    evaluated: bool,
    saved: bool,
}

impl Due {
    /// After so many steps.
    fn after(step: usize, config: &TrainConfig) -> Self {
        let last = step == config.steps;
        Self {
            last,
            logged: last || step == 1 || step.is_multiple_of(config.log_interval),
            evaluated: last || step.is_multiple_of(config.eval_interval),
            saved: step.is_multiple_of(config.checkpoint_interval),
        }
    }

    fn anything(self) -> bool {
        self.last || self.logged || self.evaluated || self.saved
    }
}

/// The loop in progress.
pub(crate) struct Training<'a, B: TrainingBackend> {
    strategy: &'a StepStrategy<B>,
    optimizer: Optimizer<B::InnerBackend>,
    average: Option<Average<B::InnerBackend>>,
    pub(crate) processor: Processor<B>,
    interrupter: Interrupter,
    pub(crate) progressed: Progressed,
    recorder: Recorder,
    file_check: FileCheck,
    pace: Pace,
    pending: Pending<B>,
}

impl<'a, B: TrainingBackend> Training<'a, B> {
    /// A loop that stands at a position.
    pub(crate) fn new(
        strategy: &'a StepStrategy<B>,
        position: Position<B::InnerBackend>,
        processor: Processor<B>,
        interrupter: Interrupter,
    ) -> Self {
        let Position {
            optimizer,
            average,
            state,
            recorder,
            file_check,
        } = position;
        let flops = count::flops_per_token(&strategy.model).training;
        Self {
            strategy,
            optimizer,
            average,
            processor,
            interrupter,
            pace: Pace::new(state.step, flops, strategy.config.precision),
            progressed: Progressed {
                state,
                ..Progressed::default()
            },
            recorder,
            file_check,
            pending: Pending::default(),
        }
    }

    /// Trains to the last step, or until it is interrupted or fails.
    pub(crate) fn run(
        &mut self,
        mut model: Trainee<B>,
        batches: &mut dyn Iterator<Item = TokenBatch<B>>,
    ) -> (Trainee<B>, Result<(), TrainError>) {
        let begun_at = self.step();
        self.replay();
        self.recorder.record(&Event::Begun {
            time: now(),
            step: begun_at,
            steps: self.strategy.config.steps,
            backend: self.progressed.state.backend.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            floor: self.strategy.floor,
        });
        let result;
        (model, result) = self.steps(model, batches);
        let saved = match &result {
            // The weights led to what had to be skipped, or were trained on damaged data: the checkpoint before is better.
            Err(TrainError::Diverged { .. } | TrainError::DamagedData { .. }) => Ok(()),
            // It is not this process's directory any more.
            Err(TrainError::RunReplaced { .. } | TrainError::LockReplaced { .. }) => Ok(()),
            // There is nothing that was not there before.
            _ if self.step() == begun_at => Ok(()),
            _ => self.recorder.check().and_then(|()| self.save_last(&model)),
        };
        let result = result.and(saved);
        // A checkpoint in progress is whole or absent in any case; waiting makes it whole.
        self.recorder.wait();
        let result = result.and(self.recorder.check());
        let how = match &result {
            Err(_) => Ending::Failed,
            Ok(()) if self.progressed.interrupted => Ending::Interrupted,
            Ok(()) => Ending::Finished,
        };
        self.recorder.record(&Event::Ended {
            time: now(),
            step: self.step(),
            how,
        });
        let flushed = self.recorder.flush();
        self.progressed.checkpoint = self.recorder.newest.clone();
        (model, result.and(flushed))
    }

    fn steps(
        &mut self,
        mut model: Trainee<B>,
        batches: &mut dyn Iterator<Item = TokenBatch<B>>,
    ) -> (Trainee<B>, Result<(), TrainError>) {
        let begun_at = self.step();
        let damaged = |source| TrainError::DamagedData { source, begun_at };
        let mut made = Ok(());
        while made.is_ok() && self.made() < self.strategy.config.steps {
            if self.interrupter.should_stop() {
                self.progressed.interrupted = true;
                break;
            }
            made = self.poll_file_check().map_err(damaged);
            if made.is_ok() {
                (model, made) = self.next(model, batches);
            }
        }
        if made.is_ok() && !self.progressed.interrupted {
            made = self.finish_file_check().map_err(damaged);
        }
        // What was made after a step that has to be skipped is not there, and a run that goes on will make it.
        let settled = self.settle().map(|_| ());
        (model, settled.and(made))
    }

    /// Reports the end of the check of files without block hashes.
    fn poll_file_check(&mut self) -> Result<(), DataError> {
        let over = self.file_check.poll()?;
        over.into_iter()
            .for_each(|line| self.recorder.notes.say(line));
        Ok(())
    }

    /// Waits for the check of files without block hashes, unless the run is interrupted.
    fn finish_file_check(&mut self) -> Result<(), DataError> {
        self.poll_file_check()?;
        let left = self.file_check.left();
        if left > 0 {
            let line = format!("waiting until the last {left} bytes of the data are verified");
            self.recorder.notes.say(line);
        }
        let interrupter = &self.interrupter;
        let over = self.file_check.wait(|| interrupter.should_stop())?;
        over.into_iter()
            .for_each(|line| self.recorder.notes.say(line));
        Ok(())
    }

    /// Makes a step, and does what is due after it.
    fn next(
        &mut self,
        mut model: Trainee<B>,
        batches: &mut dyn Iterator<Item = TokenBatch<B>>,
    ) -> (Trainee<B>, Result<(), TrainError>) {
        let micro_batches = match self.next_step(batches) {
            Ok(micro_batches) => micro_batches,
            Err(error) => return (model, Err(error)),
        };
        let made = Micro::of(micro_batches);
        let logged = (made.learnt < made.tokens).then_some(made.learnt);
        let found;
        (model, found) = match (made.learnt, self.strategy.reads) {
            (0, _) => (model, self.pass_over(made)),
            (_, Reads::EveryStep) => self.update(model, &made),
            (_, Reads::WhenDue) => self.update_behind(model, made),
        };
        let after = found.and_then(|found| match found {
            Found::Taken(stepped) => self.after_step(&model, Some(stepped), logged),
            Found::Skipped => self.after_step(&model, None, logged),
            Found::Later => {
                self.recorder.look();
                Ok(())
            }
        });
        (model, after)
    }

    /// Steps made and judged.
    fn step(&self) -> usize {
        self.progressed.state.step
    }

    /// Steps made, with those that are still to be judged.
    fn made(&self) -> usize {
        self.step() + self.pending.len()
    }

    /// The next step's micro-batches.
    fn next_step(
        &mut self,
        batches: &mut dyn Iterator<Item = TokenBatch<B>>,
    ) -> Result<Vec<TokenBatch<B>>, TrainError> {
        if let Some(again) = self.pending.again() {
            return Ok(again);
        }
        let wanted = self.strategy.config.accumulation;
        let found: Vec<_> = batches.take(wanted).collect();
        match self.strategy.failure.take() {
            Some(error) => Err(error.into()),
            None => Ok(found),
        }
    }

    /// One step: an update, unless it has to be skipped.
    fn update(
        &mut self,
        model: Trainee<B>,
        made: &Micro<B>,
    ) -> (Trainee<B>, Result<Found, TrainError>) {
        let started = Instant::now();
        let (config, step, scale) = (&self.strategy.config, self.step(), self.scale());
        let rate = learning_rate(config, step);
        let ((loss, norm), factor, grads) = B::run(|| {
            let computed = compute(&model, &made.batches, made.learnt, config, step, scale);
            // Reading waits for the device: whether the step is one to be skipped must be known before the update.
            let figures = read([(computed.loss, computed.norm)]).pop();
            let figures = figures.unwrap_or((f64::NAN, f64::NAN));
            (figures, computed.factor, computed.grads)
        });
        let verdict = self.judge(loss, norm);
        if verdict != Verdict::Go {
            self.pace.add(made.tokens, started);
            let told = self.skip(loss, norm, verdict);
            return (model, told.map(|()| Found::Skipped));
        }
        let model = self.take(model, grads, factor, rate, None);
        self.pace.add(made.tokens, started);
        let stepped = Stepped { loss, norm, rate };
        (model, Ok(Found::Taken(stepped)))
    }

    /// What the loss of the steps made now is multiplied by for its gradients' sake.
    fn scale(&self) -> Option<f64> {
        let fixed = self.strategy.config.loss_scale;
        let found = || self.progressed.state.loss_scale.map(|scale| scale.factor());
        (fixed > 0.0).then_some(fixed).or_else(found)
    }

    /// The update of the weights, of what the optimizer carries, and of the average.
    fn take(
        &mut self,
        model: Trainee<B>,
        grads: GradientsParams,
        factor: Option<Tensor<B::InnerBackend, 1>>,
        rate: f64,
        guard: Option<&Guard<B::InnerBackend>>,
    ) -> Trainee<B> {
        let optimizer = &mut self.optimizer;
        let model = B::run(|| optimizer.guarded_update::<B, _>(model, grads, factor, rate, guard));
        if let Some(average) = &mut self.average {
            average.guarded_update(&model.valid().decoder, self.optimizer.updates(), guard);
        }
        model
    }

    /// Logs, evaluates and saves as the intervals say.
    fn after_step(
        &mut self,
        model: &Trainee<B>,
        stepped: Option<Stepped>,
        learnt: Option<usize>,
    ) -> Result<(), TrainError> {
        let config = &self.strategy.config;
        let Due {
            last,
            logged,
            evaluated,
            saved,
        } = Due::after(self.step(), config);
        self.recorder.look();
        if logged || evaluated || saved {
            self.recorder.check()?;
        }
        if let Some(stepped) = stepped.filter(|_| logged) {
            self.log(stepped, learnt);
        }
        let mut due = saved || (self.recorder.owed && logged);
        if evaluated {
            let better = self.validate(model)?;
            due |= better && config.keep_best;
            if B::works_behind() {
                // What evaluation takes of a device's memory is not what training does.
                B::memory_cleanup(&self.strategy.device);
            }
        }
        // The last step's checkpoint is written at the end, as an interrupted run's is.
        if due && !last {
            let (contents, keep) = (self.contents(model), self.keep());
            self.recorder.save(contents, keep);
        }
        Ok(())
    }

    /// The weights that the model is used with: their average, where there is one.
    fn used(&self, model: &Trainee<B>) -> Decoder<B::InnerBackend> {
        match &self.average {
            Some(average) => average.decoder().clone(),
            None => model.valid().decoder,
        }
    }

    fn contents(&self, model: &Trainee<B>) -> Contents<B::InnerBackend> {
        let optimizer = self.optimizer.snapshot();
        let mut state = self.progressed.state.clone();
        state.updates = optimizer.updates;
        Contents {
            decoder: self.used(model),
            training: self.average.as_ref().map(|_| model.valid().decoder),
            optimizer,
            about: Arc::clone(&self.strategy.about),
            state,
        }
    }

    fn keep(&self) -> Keep {
        let config = &self.strategy.config;
        let best = self.progressed.state.best.filter(|_| config.keep_best);
        Keep {
            last: config.keep_last,
            best: best.map(|best| best.step),
        }
    }

    fn save_last(&mut self, model: &Trainee<B>) -> Result<(), TrainError> {
        let keep = self.keep();
        let contents = self.contents(model);
        self.recorder
            .save_last(self.step(), keep, || contents.clone())
    }
}
