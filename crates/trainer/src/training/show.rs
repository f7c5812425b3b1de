//! What the loop tells of its steps: lines of the log, and figures for Burn's renderers.

use burn::data::dataloader::Progress;
use burn::train::{EventProcessorTraining, LearnerEvent, TrainingItem};
use emberlm_kernels::TrainingBackend;

use super::{Stepped, Training};
use crate::events::{Event, now};
use crate::metrics::Figures;

impl<B: TrainingBackend> Training<'_, B> {
    /// Shows what a resumed run did before it was stopped.
    pub(super) fn replay(&mut self) {
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

    /// A line of the log; `learnt` is how many of the step's targets are, where it is not all of them.
    pub(super) fn log(&mut self, stepped: Stepped, learnt: Option<usize>) {
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
            device_in_use: pace.device.map(|memory| memory.in_use),
            device_reserved: pace.device.map(|memory| memory.reserved),
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

    /// Positions computed in all steps so far.
    fn tokens(&self) -> u64 {
        let seq_len = self.strategy.seq_len as u64;
        self.step() as u64 * self.strategy.config.step_sequences() * seq_len
    }

    /// A step's figures as Burn's renderers take them: an evaluation interval stands in for an epoch.
    pub(super) fn item(&self, figures: Figures, step: usize) -> TrainingItem<Figures> {
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
