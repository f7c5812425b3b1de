//! The interface between a worker's thread and the engine that it runs.

use std::sync::Arc;

use emberlm_generate::{
    Counts, EmbeddingRequest, Engine, Event, GenerateError, ModelSizes, Request, RequestId,
    SettingError,
};
use emberlm_kernels::Backend;
use emberlm_model::Transformer;
use emberlm_tokenizer::EncodedSequence;

/// A request to an engine.
#[derive(Debug)]
pub enum Work {
    /// Generate text.
    Generate(Box<Request>),
    /// Embed the tokens of texts.
    Embed(EmbeddingRequest),
    /// Compute the scores of an encoder's labels for texts or pairs of texts.
    Classify(Vec<EncodedSequence>),
}

impl Work {
    /// The number of samples or texts, each of which has its own events.
    pub fn samples(&self) -> usize {
        match self {
            Self::Generate(request) => request.samples,
            Self::Embed(request) => request.texts.len(),
            Self::Classify(texts) => texts.len(),
        }
    }
}

/// The limits of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineLimits {
    /// Number of sequences that run at the same time.
    pub slots: usize,
    /// The context in tokens.
    pub context: usize,
}

/// Runs requests in steps. All requests are numbered, and their events have the number.
pub trait WorkerEngine: Send + 'static {
    /// A model that replaces the current one.
    type Replacement: Send;

    /// The limits of requests.
    fn limits(&self) -> EngineLimits;

    /// The sizes of the current model.
    fn sizes(&self) -> ModelSizes;

    /// The current work and the totals.
    fn counts(&self) -> Counts;

    /// Queues a request.
    ///
    /// # Errors
    /// The engine does not support the request, or cannot be loaded. It does not change.
    fn submit(&mut self, work: Work) -> Result<RequestId, SubmitError>;

    /// Runs one pass over the weights and reports its events. Returns false if there was nothing to run.
    fn step(&mut self, on: &mut dyn FnMut(Event)) -> bool;

    /// Returns true if nothing runs and nothing waits.
    fn is_idle(&self) -> bool;

    /// Leaves a request out of passes until it is resumed.
    fn pause(&mut self, request: RequestId);

    /// Lets a paused request continue.
    fn resume(&mut self, request: RequestId);

    /// Ends a request, which has no further events.
    fn cancel(&mut self, request: RequestId);

    /// Ends one sample or text of a request.
    fn cancel_sample(&mut self, request: RequestId, sample: usize);

    /// Replaces the model once nothing runs. A model that does not fit is ignored.
    fn replace(&mut self, model: Self::Replacement);

    /// Returns true if the model's weights are in memory.
    fn is_loaded(&self) -> bool {
        true
    }

    /// Receives a function that makes the thread call [`WorkerEngine::rest`] if nothing runs.
    fn on_wake(&mut self, wake: Box<dyn Fn() + Send>) {
        drop(wake);
    }

    /// Returns true if the engine takes no further request until it has rested.
    fn must_rest(&self) -> bool {
        false
    }

    /// Called while nothing runs and nothing waits.
    fn rest(&mut self) {}

    /// Called before the program ends.
    fn close(&mut self) {}
}

/// A request that an engine does not take.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// The engine rejects the request.
    #[error(transparent)]
    Invalid(#[from] GenerateError),
    /// The model cannot be loaded again.
    #[error("the model cannot be loaded: {0}")]
    Load(String),
}

/// A decoder that replaces an engine's current one.
#[derive(Debug)]
pub enum Replacement<B: Backend> {
    /// Other weights: [`Engine::replace_decoder`].
    Decoder(Arc<Transformer<B>>),
    /// The same weights with other adapters: [`Engine::replace_bank`].
    Bank(Arc<Transformer<B>>),
}

impl<B: Backend> WorkerEngine for Engine<B> {
    type Replacement = Replacement<B>;

    fn limits(&self) -> EngineLimits {
        let config = self.config();
        EngineLimits {
            slots: config.slots,
            context: config.capacity,
        }
    }

    fn sizes(&self) -> ModelSizes {
        self.model().sizes()
    }

    fn counts(&self) -> Counts {
        Self::counts(self)
    }

    fn submit(&mut self, work: Work) -> Result<RequestId, SubmitError> {
        Ok(match work {
            Work::Generate(request) => Self::submit(self, *request)?,
            Work::Embed(request) => self.submit_embedding(request)?,
            Work::Classify(_) => {
                let rule = "must be an encoder with a classifier of texts";
                let error = SettingError::new("model", "not an encoder", rule);
                return Err(GenerateError::from(error).into());
            }
        })
    }

    fn step(&mut self, on: &mut dyn FnMut(Event)) -> bool {
        Self::step(self, &mut |event| on(event))
    }

    fn is_idle(&self) -> bool {
        Self::is_idle(self)
    }

    fn pause(&mut self, request: RequestId) {
        Self::pause(self, request);
    }

    fn resume(&mut self, request: RequestId) {
        Self::resume(self, request);
    }

    fn cancel(&mut self, request: RequestId) {
        Self::cancel(self, request);
    }

    fn cancel_sample(&mut self, request: RequestId, sample: usize) {
        Self::cancel_sample(self, request, sample);
    }

    fn replace(&mut self, model: Self::Replacement) {
        // If it does not fit, the engine continues with the current decoder.
        let _ = match model {
            Replacement::Decoder(decoder) => self.replace_decoder(decoder),
            Replacement::Bank(decoder) => self.replace_bank(decoder),
        };
    }
}
