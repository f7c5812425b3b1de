//! The training loop, counted in steps.
//!
//! ```text
//! step:  micro-batch ─► loss ─► gradients ┐ × accumulation, summed (the loss is a mean over the whole step)
//!        one norm over all gradients ─► one clip ─► one rate ─► one AdamW update
//! every log_interval steps         figures ─► events.jsonl, renderer
//! every eval_interval steps        validation loss and a sample
//! every checkpoint_interval steps  a checkpoint; and at the end, also of an interrupted run
//! ```

use std::time::Instant;

use burn::data::dataloader::Progress;
use burn::module::AutodiffModule;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::{ElementConversion, Tensor};
use burn::train::{EventProcessorTraining, Interrupter, LearnerEvent, TrainingItem};
use emberlm_kernels::TrainingBackend;
use emberlm_model::TrainingPass;

use crate::checkpoint::{self, Best, Contents, State};
use crate::clip::{clip_factor, global_norm};
use crate::error::TrainError;
use crate::evaluate::evaluate;
use crate::events::{Event, EventLog, now};
use crate::metrics::Figures;
use crate::optimizer::AdamW;
use crate::sample::sample;
use crate::schedule::learning_rate;
use crate::strategy::{Processor, Progressed, StepStrategy};
use crate::trainee::{TokenBatch, Trainee};

/// What was trained since the last line of the log.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    tokens: usize,
    seconds: f64,
}

/// What a step leaves on the device.
struct Stepped<B: TrainingBackend> {
    /// The mean loss over the step's tokens, `[1]`.
    loss: Tensor<B::InnerBackend, 1>,
    /// The norm of all gradients before clipping, `[1]`.
    norm: Option<Tensor<B::InnerBackend, 1>>,
    rate: f64,
}

/// The loop in progress.
pub(crate) struct Training<'a, B: TrainingBackend> {
    strategy: &'a StepStrategy<B>,
    optimizer: AdamW<B::InnerBackend>,
    pub(crate) processor: Processor<B>,
    interrupter: Interrupter,
    pub(crate) progressed: Progressed,
    since_line: Pace,
    events: Option<EventLog>,
}

impl<'a, B: TrainingBackend> Training<'a, B> {
    /// A loop that has not begun.
    pub(crate) fn new(
        strategy: &'a StepStrategy<B>,
        processor: Processor<B>,
        interrupter: Interrupter,
    ) -> Self {
        Self {
            strategy,
            optimizer: AdamW::new(&strategy.config),
            processor,
            interrupter,
            progressed: Progressed::default(),
            since_line: Pace::default(),
            events: None,
        }
    }

    /// Trains to the last step, or until it is interrupted or fails.
    pub(crate) fn run(
        &mut self,
        mut model: Trainee<B>,
        batches: &mut dyn Iterator<Item = TokenBatch<B>>,
    ) -> (Trainee<B>, Result<(), TrainError>) {
        match EventLog::create(&self.strategy.run) {
            Ok(log) => self.events = Some(log),
            Err(error) => return (model, Err(error)),
        }
        while self.progressed.step < self.strategy.config.steps {
            if self.interrupter.should_stop() {
                self.progressed.interrupted = true;
                break;
            }
            let micro_batches = match self.next_step(batches) {
                Ok(micro_batches) => micro_batches,
                Err(error) => return (model, Err(error)),
            };
            let started = Instant::now();
            let (updated, stepped) = self.step(model, micro_batches);
            model = updated;
            if let Err(error) = self.after_step(&model, stepped, started) {
                return (model, Err(error));
            }
        }
        let ended = self.finish(&model);
        (model, ended)
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

    /// One update.
    fn step(
        &mut self,
        model: Trainee<B>,
        micro_batches: Vec<TokenBatch<B>>,
    ) -> (Trainee<B>, Stepped<B>) {
        let config = &self.strategy.config;
        let rate = learning_rate(config, self.progressed.step);
        let tokens: usize = micro_batches.iter().map(TokenBatch::count).sum();
        // Dropout is a function of the seed, the step and the micro-batch, so that nothing of it has to be carried.
        let step = self.progressed.step as u64;
        let passes = TrainingPass::of_step(config.seed, step, config.recompute);
        let (loss, grads) = accumulate(&model, micro_batches, tokens, passes);
        let norm = global_norm::<B, _>(&model, &grads);
        let factor = norm
            .clone()
            .and_then(|norm| clip_factor(norm, config.clip_norm));
        let model = self.optimizer.update::<B, _>(model, grads, factor, rate);
        self.progressed.step += 1;
        self.since_line.tokens += tokens;
        (model, Stepped { loss, norm, rate })
    }

    /// Logs, evaluates and saves as the intervals say.
    fn after_step(
        &mut self,
        model: &Trainee<B>,
        stepped: Stepped<B>,
        started: Instant,
    ) -> Result<(), TrainError> {
        let config = &self.strategy.config;
        let step = self.progressed.step;
        let last = step == config.steps;
        let logged = last || step == 1 || step.is_multiple_of(config.log_interval);
        // Reading the loss waits for the device, so that the time is that of finished work.
        let read = logged.then(|| self.read(stepped));
        self.since_line.seconds += started.elapsed().as_secs_f64();
        if let Some(figures) = read {
            self.log(figures)?;
        }
        if last || step.is_multiple_of(config.eval_interval) {
            self.validate(model)?;
        }
        // The last step's checkpoint is written at the end, as an interrupted run's is.
        if !last && step.is_multiple_of(config.checkpoint_interval) {
            self.save(model)?;
        }
        Ok(())
    }

    fn read(&self, stepped: Stepped<B>) -> Figures {
        Figures {
            loss: stepped.loss.into_scalar().elem(),
            gradient_norm: stepped.norm.map_or(0.0, |norm| norm.into_scalar().elem()),
            learning_rate: stepped.rate,
            tokens_per_second: 0.0,
        }
    }

    fn log(&mut self, mut figures: Figures) -> Result<(), TrainError> {
        let step = self.progressed.step;
        if !figures.loss.is_finite() {
            let loss = figures.loss;
            return Err(TrainError::Diverged { step, loss });
        }
        let pace = std::mem::take(&mut self.since_line);
        figures.tokens_per_second = pace.tokens as f64 / pace.seconds.max(f64::EPSILON);
        self.record(&Event::Step {
            step,
            tokens: self.tokens(),
            loss: figures.loss,
            perplexity: figures.loss.exp(),
            gradient_norm: figures.gradient_norm,
            learning_rate: figures.learning_rate,
        })?;
        let left = self.strategy.config.steps - step;
        let step_tokens = self.tokens() as f64 / step as f64;
        self.record(&Event::Pace {
            time: now(),
            step,
            tokens_per_second: figures.tokens_per_second,
            utilization: None,
            memory_mib: None,
            seconds_left: left as f64 * step_tokens / figures.tokens_per_second,
        })?;
        let item = self.item(figures);
        self.processor
            .process_train(LearnerEvent::ProcessedItem(item));
        Ok(())
    }

    /// Evaluates, and lets the model write.
    fn validate(&mut self, model: &Trainee<B>) -> Result<(), TrainError> {
        let strategy = self.strategy;
        let config = &strategy.config;
        let step = self.progressed.step;
        let model = model.valid();
        if !strategy.validation.is_empty() {
            let most = (config.eval_tokens > 0).then_some(config.eval_tokens);
            let found = evaluate(
                &model.decoder,
                &strategy.validation,
                strategy.seq_len,
                config.eval_batch,
                most,
            )?;
            self.progressed.validation_loss = Some(found.loss);
            if self
                .progressed
                .best
                .is_none_or(|best| found.loss < best.loss)
            {
                let loss = found.loss;
                self.progressed.best = Some(Best { loss, step });
            }
            self.record(&Event::Evaluation {
                step,
                loss: found.loss,
                perplexity: found.loss.exp(),
                tokens: found.tokens,
            })?;
            let item = self.item(Figures::of_loss(found.loss));
            self.processor
                .process_valid(LearnerEvent::ProcessedItem(item));
            let round = step.div_ceil(config.eval_interval);
            self.processor.process_valid(LearnerEvent::EndEpoch(round));
        }
        if config.sample_tokens > 0 {
            let (tokenizer, tokens) = (&strategy.tokenizer, config.sample_tokens);
            let text = sample(&model.decoder, tokenizer, tokens, config.seed)?;
            let path = strategy
                .run
                .join("samples")
                .join(format!("step-{step:08}.txt"));
            std::fs::write(&path, &text).map_err(TrainError::file("write", &path))?;
            self.record(&Event::Sample {
                step,
                text: text.clone(),
            })?;
            self.progressed.sample = Some(text);
        }
        Ok(())
    }

    fn save(&mut self, model: &Trainee<B>) -> Result<(), TrainError> {
        let step = self.progressed.step;
        let contents = Contents {
            decoder: &model.valid().decoder,
            optimizer: self.optimizer.state(),
            description: &self.strategy.description,
            tokenizer: Some(&self.strategy.tokenizer),
            state: &State {
                step,
                validation_loss: self.progressed.validation_loss,
                best: self.progressed.best,
            },
        };
        let path = checkpoint::write(&self.strategy.run, contents)?;
        self.progressed.checkpoint = Some(path);
        self.record(&Event::Checkpoint { time: now(), step })
    }

    fn finish(&mut self, model: &Trainee<B>) -> Result<(), TrainError> {
        // A run interrupted before its first step has nothing worth keeping.
        if self.progressed.step == 0 {
            return Ok(());
        }
        self.save(model)
    }

    fn record(&mut self, event: &Event) -> Result<(), TrainError> {
        match &mut self.events {
            Some(events) => events.write(event),
            None => Ok(()),
        }
    }

    fn tokens(&self) -> u64 {
        let seq_len = self.strategy.seq_len as u64;
        self.progressed.step as u64 * self.strategy.config.step_sequences() * seq_len
    }

    /// Figures as Burn's renderers take them: an evaluation interval stands in for an epoch.
    fn item(&self, figures: Figures) -> TrainingItem<Figures> {
        let config = &self.strategy.config;
        let step = self.progressed.step;
        let interval = config.eval_interval.min(config.steps);
        let round = step.div_ceil(interval);
        let within = step - (round - 1) * interval;
        TrainingItem::new(
            figures,
            Progress::new(within, interval),
            Progress::new(round, config.steps.div_ceil(interval)),
            Some(step),
            Some(figures.learning_rate),
        )
    }
}

/// The mean loss over `tokens`, `[1]`, and its gradients, over all of a step's micro-batches.
pub(crate) fn accumulate<B: TrainingBackend>(
    model: &Trainee<B>,
    micro_batches: Vec<TokenBatch<B>>,
    tokens: usize,
    passes: impl Iterator<Item = TrainingPass>,
) -> (Tensor<B::InnerBackend, 1>, GradientsParams) {
    let mut accumulator = GradientsAccumulator::new();
    let mut loss: Option<Tensor<B::InnerBackend, 1>> = None;
    for (batch, pass) in micro_batches.into_iter().zip(passes) {
        let (part, grads) = model.loss_and_gradients(batch, tokens, pass);
        accumulator.accumulate(model, grads);
        loss = Some(match loss {
            Some(sum) => sum + part,
            None => part,
        });
    }
    let loss = loss.unwrap_or_else(|| Tensor::zeros([1], &model.decoder.device()));
    (loss, accumulator.grads())
}
