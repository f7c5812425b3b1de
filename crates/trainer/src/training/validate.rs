//! What the loop does at an evaluation: the loss on what is not trained on, and a sample.

use burn::train::{EventProcessorTraining, LearnerEvent};
use emberlm_kernels::TrainingBackend;

use super::Training;
use crate::checkpoint::Best;
use crate::error::TrainError;
use crate::events::{DatasetLoss, Event};
use crate::metrics::Figures;
use crate::sample::sample;
use crate::trainee::Trainee;

impl<B: TrainingBackend> Training<'_, B> {
    /// Evaluates, and lets the model write. Whether the loss is the lowest so far.
    pub(super) fn validate(&mut self, model: &Trainee<B>) -> Result<bool, TrainError> {
        let strategy = self.strategy;
        let config = &strategy.config;
        let step = self.step();
        let decoder = self.used(model);
        let mut text = None;
        if config.sample_tokens > 0 {
            let (tokenizer, tokens) = (&strategy.tokenizer, config.sample_tokens);
            text = Some(sample(&decoder, tokenizer, tokens, config.seed)?);
        }
        let mut better = false;
        let most = (config.eval_tokens > 0).then_some(config.eval_tokens);
        let found = strategy
            .validation
            .evaluate(&decoder, config.eval_batch, most)?;
        if let Some(found) = found {
            let loss = found.loss;
            let state = &mut self.progressed.state;
            state.validation_loss = Some(loss);
            better = state.best.is_none_or(|best| loss < best.loss);
            if better {
                state.best = Some(Best { loss, step });
            }
            self.show_evaluation(loss, &found.datasets, step);
            self.recorder.record(&Event::Evaluation {
                step,
                loss,
                perplexity: loss.exp(),
                tokens: found.tokens,
                datasets: found.datasets,
            });
        }
        if let Some(text) = text {
            self.keep_sample(step, text);
        }
        Ok(better)
    }

    /// Shows a validation loss, and each dataset's own where there are several.
    pub(super) fn show_evaluation(&mut self, loss: f64, datasets: &[DatasetLoss], step: usize) {
        let own = datasets
            .iter()
            .map(|of| format!("  {} {:.4}", of.dataset, of.loss));
        let figures = Figures {
            datasets: own.collect::<String>().into(),
            ..Figures::of_loss(loss)
        };
        let item = self.item(figures, step);
        self.processor
            .process_valid(LearnerEvent::ProcessedItem(item));
        let round = step.div_ceil(self.strategy.config.eval_interval);
        self.processor.process_valid(LearnerEvent::EndEpoch(round));
    }

    fn keep_sample(&mut self, step: usize, text: String) {
        let folder = self.strategy.run.join("samples");
        let path = folder.join(format!("step-{step:08}.txt"));
        // It is in the events as well: a disk that is full should not end the run for it.
        if let Err(error) = std::fs::write(&path, &text) {
            let said = format!("warning: {}: {error}", path.display());
            self.recorder.notes.say(said);
        }
        self.recorder.record(&Event::Sample {
            step,
            text: text.clone(),
        });
        self.progressed.sample = Some(text);
    }
}
