//! An evaluation during training: the loss on the validation splits, and a sample.

use std::ops::ControlFlow;

use emberlm_kernels::TrainingBackend;
use emberlm_model::Transformer;

use super::RankZero;
use super::show::evaluation_figures;
use crate::checkpoint::State;
use crate::error::TrainError;
use crate::evaluate::validation::{Limits, Validated, Validation};
use crate::hooks::EvaluationEnd;
use crate::objective::model::TrainingModel;
use crate::objective::sample::{SamplePrompt, sample, sample_answer};
use crate::report::events::Event;
use crate::run::folder::SAMPLES;
use crate::run::tasks::RunTasks;
use crate::step::engine::StepEngine;
use crate::stop::StopSignal;

/// Evaluates a run's model on its validation data, as one of the ranks.
pub(super) struct Evaluator<'a, B: TrainingBackend> {
    validation: &'a Validation,
    tasks: Option<&'a RunTasks>,
    engine: &'a StepEngine<B>,
    /// Interrupts evaluations.
    stop: &'a StopSignal,
}

impl<B: TrainingBackend> Clone for Evaluator<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: TrainingBackend> Copy for Evaluator<'_, B> {}

impl<'a, B: TrainingBackend> Evaluator<'a, B> {
    pub(super) fn new(
        validation: &'a Validation,
        tasks: Option<&'a RunTasks>,
        engine: &'a StepEngine<B>,
        stop: &'a StopSignal,
    ) -> Self {
        Self {
            validation,
            tasks,
            engine,
            stop,
        }
    }

    pub(super) fn engine(self) -> &'a StepEngine<B> {
        self.engine
    }

    /// The outcome of an evaluation that all ranks take part in.
    pub(super) fn evaluate(
        self,
        evaluated: &TrainingModel<B::InnerBackend>,
    ) -> Result<Validated, TrainError> {
        let config = &self.engine.config().evaluation;
        let limits = Limits {
            batch: config.batch,
            max_tokens: config.token_limit(),
            stop: self.stop,
        };
        let peers = self.engine.peers();
        let mut found = self.validation.evaluate(evaluated, limits, peers)?;
        if let (ControlFlow::Continue(Some(found)), Some(tasks), Some(decoder)) =
            (&mut found, self.tasks, evaluated.decoder())
        {
            let stop = || limits.check();
            let ControlFlow::Continue(values) = tasks.evaluate(peers, decoder, stop)? else {
                return Ok(ControlFlow::Break(()));
            };
            for (name, value) in values {
                found.metrics.insert(&name, value);
            }
        }
        Ok(found)
    }
}

impl<B: TrainingBackend> RankZero<B> {
    /// Evaluates and samples. Returns true if the loss is the lowest so far. If a request to stop interrupts
    /// the evaluation, the resumed run repeats it.
    pub(super) fn validate(
        &mut self,
        evaluator: Evaluator<'_, B>,
        model: &TrainingModel<B>,
        state: &mut State,
    ) -> Result<bool, TrainError> {
        let engine = evaluator.engine();
        let config = engine.config();
        let step = engine.position().step;
        let evaluated = engine.evaluated(model);
        let mut text = None;
        let tokens = config.evaluation.sample_tokens;
        if let Some(decoder) = evaluated
            .decoder()
            .filter(|_| tokens > 0 && !evaluator.validation.samples())
        {
            // Half of the context is left for the answer.
            let most = decoder.config().seq_len() / 2;
            let prompt = match evaluator.validation.prompt(most)? {
                Some(prompt) => Some(prompt),
                None => self.source.prompt(most)?,
            };
            text = Some(self.sampled(decoder, prompt.as_ref(), tokens, config.seed)?);
        }
        let mut better = false;
        let found = evaluator.evaluate(&evaluated)?;
        // A run at its last step is not resumed for an evaluation.
        state.evaluation_due = found.is_break() && step < config.steps;
        let ControlFlow::Continue(found) = found else {
            return Ok(false);
        };
        if let Some(mut found) = found {
            text = found.sample.take().or(text);
            let loss = found.loss;
            better = state.record_validation(loss, step, config.evaluation.interval);
            let mut metrics = found.metrics;
            let recorded = self.recorder.hooks.on_evaluation(&EvaluationEnd {
                step,
                loss,
                tokens: found.tokens,
                datasets: &found.datasets,
                is_best: better,
            });
            for (name, value) in recorded.iter() {
                metrics.insert(name, value);
            }
            let event = Event::Evaluation {
                step,
                loss,
                perplexity: config.objective.perplexity(loss),
                tokens: found.tokens,
                datasets: found.datasets,
                metrics,
            };
            self.display
                .show_evaluation(step, &evaluation_figures(&event));
            self.recorder.record(&event);
        }
        if let Some(text) = text {
            self.keep_sample(step, text);
        }
        Ok(better)
    }

    /// An answer to a prompt of the data, or a text.
    fn sampled(
        &self,
        decoder: &Transformer<B::InnerBackend>,
        prompt: Option<&SamplePrompt>,
        tokens: usize,
        seed: u64,
    ) -> Result<String, TrainError> {
        let tokenizer = &self.tokenizer;
        if let Some(prompt) = prompt {
            return sample_answer(decoder, tokenizer, prompt, tokens, seed);
        }
        let template = self.about.description.chat_template.as_ref();
        let begins_with = template.and_then(|template| template.begins_with.as_deref());
        let begins_with = begins_with.and_then(|name| tokenizer.special_id(name));
        sample(decoder, tokenizer, begins_with, tokens, seed)
    }

    fn keep_sample(&mut self, step: usize, text: String) {
        let folder = self.run.join(SAMPLES);
        let path = folder.join(format!("step-{step:08}.txt"));
        // The sample is also in the events, so a full disk does not end the run here.
        if let Err(error) = std::fs::write(&path, &text) {
            let said = format!("warning: {}: {error}", path.display());
            self.recorder.messages.say(said);
        }
        self.recorder.record(&Event::Sample {
            step,
            text: text.clone(),
        });
        self.sample = Some(text);
    }
}
