//! The training loop, counted in steps.
//!
//! ```text
//! step:  micro-batch ─► loss ─► gradients ┐ × accumulation, summed (the loss is a mean over the step's targets)
//!        one norm over all gradients ─► go or skip ─► one clip ─► one rate ─► one update
//! every log_interval steps         figures ─► events.jsonl, renderer
//! every eval_interval steps        validation loss and a sample
//! every checkpoint_interval steps  a checkpoint; and at the end, also of an interrupted run
//! ```

use std::sync::Arc;
use std::time::Instant;

use burn::data::dataloader::Progress;
use burn::module::AutodiffModule;
use burn::train::{EventProcessorTraining, Interrupter, LearnerEvent, TrainingItem};
use emberlm_kernels::TrainingBackend;
use emberlm_model::{Decoder, TrainingPass, count};

use crate::checkpoint::{Contents, Keep};
use crate::clip::{clip_factor, global_norm};
use crate::ema::Average;
use crate::error::TrainError;
use crate::events::{Ending, Event, now};
use crate::gradients::{accumulate, read};
use crate::metrics::Figures;
use crate::optimizer::Optimizer;
use crate::pace::Pace;
use crate::recorder::Recorder;
use crate::schedule::learning_rate;
use crate::skip::Verdict;
use crate::strategy::{Position, Processor, Progressed, StepStrategy};
use crate::trainee::{TokenBatch, Trainee};

mod validate;

/// What a step has found out.
#[derive(Clone, Copy, Debug)]
struct Stepped {
    /// The mean loss over the step's targets.
    loss: f64,
    /// The norm of all gradients before clipping.
    norm: f64,
    rate: f64,
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
    pace: Pace,
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
        } = position;
        let flops = count::flops_per_token(&strategy.model).training;
        Self {
            strategy,
            optimizer,
            average,
            processor,
            interrupter,
            pace: Pace::new(state.step, flops),
            progressed: Progressed {
                state,
                ..Progressed::default()
            },
            recorder,
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
            // The weights led to what had to be skipped: the checkpoint before is better.
            Err(TrainError::Diverged { .. }) => Ok(()),
            // There is nothing that was not there before.
            _ if self.step() == begun_at => Ok(()),
            _ => self.save_last(&model),
        };
        let result = result.and(saved);
        // A checkpoint in progress is whole or absent in any case; waiting makes it whole.
        self.recorder.wait();
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
        while self.step() < self.strategy.config.steps {
            if self.interrupter.should_stop() {
                self.progressed.interrupted = true;
                break;
            }
            let micro_batches = match self.next_step(batches) {
                Ok(micro_batches) => micro_batches,
                Err(error) => return (model, Err(error)),
            };
            let started = Instant::now();
            let tokens = micro_batches.iter().map(TokenBatch::count).sum();
            let learnt = micro_batches.iter().map(|batch| batch.learnt).sum();
            let stepped;
            (model, stepped) = match learnt {
                0 => (model, self.pass_over()),
                _ => {
                    let (model, stepped) = self.update(model, micro_batches, learnt);
                    self.pace.add(tokens, started);
                    (model, stepped)
                }
            };
            let logged = (learnt < tokens).then_some(learnt);
            let after = stepped.and_then(|stepped| self.after_step(&model, stepped, logged));
            if let Err(error) = after {
                return (model, Err(error));
            }
        }
        (model, Ok(()))
    }

    /// Shows what a resumed run did before it was stopped.
    fn replay(&mut self) {
        let strategy = self.strategy;
        for event in &strategy.past {
            match *event {
                Event::Step {
                    step,
                    loss,
                    gradient_norm,
                    learning_rate,
                    ..
                } => {
                    let figures = Figures {
                        gradient_norm,
                        learning_rate,
                        ..Figures::of_loss(loss)
                    };
                    let item = LearnerEvent::ProcessedItem(self.item(figures, step));
                    self.processor.process_train(item);
                }
                Event::Evaluation {
                    step,
                    loss,
                    ref datasets,
                    ..
                } => self.show_evaluation(loss, datasets, step),
                _ => {}
            }
        }
    }

    /// Steps made.
    fn step(&self) -> usize {
        self.progressed.state.step
    }

    /// The next step's micro-batches.
    fn next_step(
        &self,
        batches: &mut dyn Iterator<Item = TokenBatch<B>>,
    ) -> Result<Vec<TokenBatch<B>>, TrainError> {
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
        micro_batches: Vec<TokenBatch<B>>,
        learnt: usize,
    ) -> (Trainee<B>, Result<Option<Stepped>, TrainError>) {
        let config = &self.strategy.config;
        let rate = learning_rate(config, self.step());
        // Dropout is a function of the seed, the step and the micro-batch, so that nothing of it has to be carried.
        let passes = TrainingPass::of_step(config.seed, self.step() as u64, config.recompute);
        let objective = config.objective();
        let (loss, norm, factor, grads) = B::run(|| {
            let (loss, grads) = accumulate(&model, micro_batches, learnt, objective, passes);
            let norm = global_norm::<B, _>(&model, &grads);
            let factor = norm
                .clone()
                .and_then(|norm| clip_factor(norm, config.clip_norm));
            // Reading waits for the device: whether the step is one to be skipped must be known before the update.
            let (loss, norm) = read(loss, norm);
            (loss, norm, factor, grads)
        });
        self.progressed.state.step += 1;
        let verdict = self.progressed.state.watch.judge(loss, norm, config);
        if let Verdict::Skip { reason } = verdict {
            return (model, self.skip(loss, norm, reason).map(|()| None));
        }
        let optimizer = &mut self.optimizer;
        let model = B::run(|| optimizer.update::<B, _>(model, grads, factor, rate));
        if let Some(average) = &mut self.average {
            average.update(&model.valid().decoder, self.optimizer.updates());
        }
        (model, Ok(Some(Stepped { loss, norm, rate })))
    }

    /// A step without a target to learn, whose mean loss would be a division by zero.
    fn pass_over(&mut self) -> Result<Option<Stepped>, TrainError> {
        self.progressed.state.step += 1;
        self.progressed.state.watch.pass_over();
        let reason = "none of its targets is to be learnt".to_owned();
        self.skip(f64::NAN, f64::NAN, reason).map(|()| None)
    }

    /// Tells of a step that was skipped.
    fn skip(&mut self, loss: f64, norm: f64, reason: String) -> Result<(), TrainError> {
        let step = self.step();
        let number = |x: f64| x.is_finite().then_some(x);
        self.recorder.record(&Event::Skipped {
            step,
            loss: number(loss),
            gradient_norm: number(norm),
            reason: reason.clone(),
        });
        let skipped = self.progressed.state.watch.in_a_row();
        if skipped >= self.strategy.config.skip_limit {
            self.recorder.wait();
            return Err(TrainError::Diverged {
                step,
                skipped,
                reason,
                last: self.recorder.newest.clone(),
            });
        }
        self.recorder
            .notes
            .say(format!("warning: step {step} was skipped: {reason}"));
        Ok(())
    }

    /// Logs, evaluates and saves as the intervals say.
    fn after_step(
        &mut self,
        model: &Trainee<B>,
        stepped: Option<Stepped>,
        learnt: Option<usize>,
    ) -> Result<(), TrainError> {
        let config = &self.strategy.config;
        let step = self.step();
        let last = step == config.steps;
        self.recorder.look();
        let logged = last || step == 1 || step.is_multiple_of(config.log_interval);
        if let Some(stepped) = stepped.filter(|_| logged) {
            self.log(stepped, learnt);
        }
        let mut due =
            step.is_multiple_of(config.checkpoint_interval) || (self.recorder.owed && logged);
        if last || step.is_multiple_of(config.eval_interval) {
            let better = self.validate(model)?;
            due |= better && config.keep_best;
        }
        // The last step's checkpoint is written at the end, as an interrupted run's is.
        if due && !last {
            let (contents, keep) = (self.contents(model), self.keep());
            self.recorder.save(contents, keep);
        }
        Ok(())
    }

    /// A line of the log; `learnt` is how many of the step's targets are, where it is not all of them.
    fn log(&mut self, stepped: Stepped, learnt: Option<usize>) {
        let step = self.step();
        let perplexity = stepped.loss.exp();
        self.recorder.record(&Event::Step {
            step,
            tokens: self.tokens(),
            learnt,
            loss: stepped.loss,
            perplexity,
            gradient_norm: stepped.norm,
            learning_rate: stepped.rate,
        });
        let steps = self.strategy.config.steps;
        let device = &self.strategy.device;
        let pace = self.pace.line::<B::InnerBackend>(step, steps, device);
        self.recorder.record(&Event::Pace {
            time: now(),
            step,
            tokens_per_second: pace.tokens_per_second,
            utilization: pace.utilization,
            memory_mib: pace.memory_mib,
            seconds_left: pace.seconds_left,
        });
        let figures = Figures {
            loss: stepped.loss,
            gradient_norm: stepped.norm,
            learning_rate: stepped.rate,
            tokens_per_second: pace.tokens_per_second,
            utilization: pace.utilization,
            memory_mib: pace.memory_mib,
            seconds_left: pace.seconds_left,
            validation: self.progressed.state.validation_loss,
            datasets: Default::default(),
            note: self.recorder.notes.shown().into(),
            sample: self.progressed.sample.as_deref().unwrap_or_default().into(),
        };
        let item = self.item(figures, step);
        self.processor
            .process_train(LearnerEvent::ProcessedItem(item));
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

    /// Positions computed in all steps so far.
    fn tokens(&self) -> u64 {
        let seq_len = self.strategy.seq_len as u64;
        self.step() as u64 * self.strategy.config.step_sequences() * seq_len
    }

    /// A step's figures as Burn's renderers take them: an evaluation interval stands in for an epoch.
    fn item(&self, figures: Figures, step: usize) -> TrainingItem<Figures> {
        let config = &self.strategy.config;
        let interval = config.eval_interval.min(config.steps);
        let round = step.div_ceil(interval);
        let within = step - (round - 1) * interval;
        let rate = figures.learning_rate;
        TrainingItem::new(
            figures,
            Progress::new(within, interval),
            Progress::new(round, config.steps.div_ceil(interval)),
            Some(step),
            Some(rate),
        )
    }
}
