//! Requests to an engine.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use emberlm_kernels::Backend;
use emberlm_model::InputError;

use super::{EngineConfig, EngineModel};
use crate::check::{check_prompt, check_stop_tokens};
use crate::chooser::{Chooser, ChooserConfig};
use crate::error::{GenerateError, SettingError};

/// The treatment of a sequence longer than the context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// A request is rejected if its prompt and new tokens may exceed the context.
    #[default]
    Refuse,
    /// A long prompt is truncated to its newest tokens, and a full context to its newest half, which is read again.
    Slide,
}

/// A prompt and the settings of its continuations.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// At least one token. With an encoder–decoder, the source, whose continuations are its targets.
    pub prompt: Vec<u32>,
    /// The number of continuations. The prompt is read once for as many as the engine has slots. The others wait at the
    /// end of the queue.
    pub samples: usize,
    /// Maximum number of tokens of each continuation.
    pub max_new_tokens: usize,
    /// Ids that end a continuation. They are not part of its tokens.
    pub stop_tokens: Vec<u32>,
    /// The sampling settings. Each sample has its own random stream of the seed.
    pub chooser: ChooserConfig,
    /// The treatment of a sequence longer than the context.
    pub overflow: Overflow,
    /// The number of an adapter in the decoder's bank ([`emberlm_model::Transformer::add_to_bank`]); `None` for the model
    /// without it.
    pub adapter: Option<usize>,
    /// The number of most probable tokens whose log-probabilities are reported for each token of the prompt, by
    /// [`super::EventKind::Prompt`]. The whole prompt is read then, without a cached prefix, even if no tokens follow. `None`
    /// reports nothing. An encoder–decoder does not predict its source.
    pub prompt_logprobs: Option<usize>,
}

impl Default for Request {
    /// One sample of 256 tokens from the model's own distribution, with an empty prompt and without stop tokens.
    fn default() -> Self {
        Self {
            prompt: Vec::new(),
            samples: 1,
            max_new_tokens: 256,
            stop_tokens: Vec::new(),
            chooser: ChooserConfig::default(),
            overflow: Overflow::default(),
            adapter: None,
            prompt_logprobs: None,
        }
    }
}

/// Texts to embed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmbeddingRequest {
    /// The tokens of at least one text, at least one each.
    pub texts: Vec<Vec<u32>>,
    /// The adapter, as in [`Request::adapter`].
    pub adapter: Option<usize>,
}

impl From<Vec<Vec<u32>>> for EmbeddingRequest {
    /// Texts for the model without an adapter of its bank.
    fn from(texts: Vec<Vec<u32>>) -> Self {
        Self {
            texts,
            adapter: None,
        }
    }
}

/// Identifies a request. No two requests of a process have the same id, whichever engines they are for: the id of a request
/// that has ended, or whose engine was unloaded, never names another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u64);

impl RequestId {
    /// A new id, greater than all before it.
    #[expect(clippy::new_without_default, reason = "each call has another result")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The remaining texts of an embedding request.
#[derive(Debug)]
pub(super) struct WaitingEmbedding {
    pub id: RequestId,
    /// The texts with their index in the request.
    pub texts: VecDeque<(usize, Vec<u32>)>,
    pub adapter: Option<usize>,
    /// True if a text already has a slot. The other texts are embedded by the same decoder.
    pub begun: bool,
}

impl WaitingEmbedding {
    /// Checks the texts.
    pub fn new<B: Backend>(
        id: RequestId,
        request: EmbeddingRequest,
        engine: &EngineConfig,
        model: &EngineModel<B>,
    ) -> Result<Self, GenerateError> {
        let EmbeddingRequest { texts, adapter } = request;
        check_adapter(adapter, model)?;
        if model.decoder().is_none() {
            let rule = "must be a decoder to embed texts";
            return Err(SettingError::new("model", "an encoder–decoder", rule).into());
        }
        if texts.is_empty() {
            return Err(InputError::Empty.into());
        }
        let vocab_size = model.sizes().vocab_size;
        for text in &texts {
            check_prompt(vocab_size, text)?;
            if text.len() > engine.capacity {
                return Err(GenerateError::Overflow {
                    prompt: text.len(),
                    max_new_tokens: 0,
                    context: engine.capacity,
                });
            }
        }
        Ok(Self {
            id,
            texts: texts.into_iter().enumerate().collect(),
            adapter,
            begun: false,
        })
    }

    /// Checks the request for a model.
    pub fn check<B: Backend>(&self, model: &EngineModel<B>) -> Result<(), GenerateError> {
        let vocab_size = model.sizes().vocab_size;
        for (_, text) in &self.texts {
            check_prompt(vocab_size, text)?;
        }
        Ok(check_adapter(self.adapter, model)?)
    }
}

/// One sample of a request.
#[derive(Debug)]
pub(super) struct Sample {
    /// Its number, from 0.
    pub number: usize,
    pub chooser: Chooser,
}

/// An accepted request without slots.
#[derive(Debug)]
pub(super) struct Waiting {
    pub id: RequestId,
    /// The prompt's tokens that fit into the context; a target's start token if there is a source.
    pub prompt: Vec<u32>,
    /// The source, with an encoder–decoder.
    pub source: Option<Arc<[u32]>>,
    /// Number of tokens cut off at the prompt's beginning.
    pub truncated_prompt: usize,
    /// At least one.
    pub samples: VecDeque<Sample>,
    /// True if other samples of the request already have slots. These samples use the same decoder.
    pub begun: bool,
    /// True if the request is paused.
    pub paused: bool,
    pub max_new_tokens: usize,
    pub stop_tokens: Arc<[u32]>,
    pub adapter: Option<usize>,
    pub prompt_logprobs: Option<usize>,
}

impl Waiting {
    /// Returns true if a pass is needed for the request.
    pub fn needs_slot(&self) -> bool {
        self.max_new_tokens > 0 || self.prompt_logprobs.is_some()
    }

    /// Checks a request.
    pub fn new<B: Backend>(
        id: RequestId,
        request: Request,
        engine: &EngineConfig,
        model: &EngineModel<B>,
    ) -> Result<Self, GenerateError> {
        let Request {
            mut prompt,
            samples,
            max_new_tokens,
            stop_tokens,
            chooser,
            overflow,
            adapter,
            prompt_logprobs,
        } = request;
        if samples == 0 {
            return Err(SettingError::new("samples", samples, "must be at least 1").into());
        }
        if let (Some(count), Some(_)) = (prompt_logprobs, model.start_token()) {
            let rule = "is not supported for an encoder–decoder, which does not predict its source";
            return Err(SettingError::new("prompt_logprobs", count, rule).into());
        }
        let (context, vocab_size) = (engine.capacity, model.sizes().vocab_size);
        let source = match model.start_token() {
            Some(start) => {
                check_source(&prompt, max_new_tokens, context)?;
                check_prompt(vocab_size, &prompt)?;
                Some(mem::replace(&mut prompt, vec![start]).into())
            }
            None => None,
        };
        let len = prompt.len();
        if source.is_none()
            && overflow == Overflow::Refuse
            && len.saturating_add(max_new_tokens) > context
        {
            return Err(GenerateError::Overflow {
                prompt: len,
                max_new_tokens,
                context,
            });
        }
        let truncated_prompt = len.saturating_sub(context);
        let sample = |number| {
            let chooser = Chooser::new(&chooser, &prompt, vocab_size, number as u64)?;
            Ok(Sample { number, chooser })
        };
        let samples = (0..samples)
            .map(sample)
            .collect::<Result<_, SettingError>>()?;
        check_prompt(vocab_size, &prompt)?;
        prompt.drain(..truncated_prompt);
        let waiting = Self {
            id,
            prompt,
            source,
            truncated_prompt,
            samples,
            begun: false,
            paused: false,
            max_new_tokens,
            stop_tokens: stop_tokens.into(),
            adapter,
            prompt_logprobs,
        };
        waiting.check(model)?;
        Ok(waiting)
    }

    /// Checks the request for a model.
    pub fn check<B: Backend>(&self, model: &EngineModel<B>) -> Result<(), GenerateError> {
        let vocab_size = model.sizes().vocab_size;
        check_stop_tokens(vocab_size, &self.stop_tokens)?;
        check_prompt(vocab_size, &self.prompt)?;
        for sample in &self.samples {
            sample.chooser.check(vocab_size)?;
        }
        Ok(check_adapter(self.adapter, model)?)
    }
}

/// Checks that the model's bank has an adapter.
fn check_adapter<B: Backend>(
    adapter: Option<usize>,
    model: &EngineModel<B>,
) -> Result<(), SettingError> {
    let adapters = model.adapters();
    match adapter.filter(|&number| number >= adapters) {
        Some(number) => {
            let rule = format!("must be below {adapters}, the number of adapters of the model");
            Err(SettingError::new("adapter", number, rule))
        }
        None => Ok(()),
    }
}

/// Checks the lengths of a source and of its target. A target is never truncated, whatever the request's
/// [`Overflow`]: its cache has no other place for the start token.
fn check_source(
    source: &[u32],
    max_new_tokens: usize,
    context: usize,
) -> Result<(), GenerateError> {
    if source.len() > context {
        return Err(GenerateError::Overflow {
            prompt: source.len(),
            max_new_tokens: 0,
            context,
        });
    }
    if max_new_tokens > context {
        let rule = format!("must be at most {context}, the context of a target");
        return Err(SettingError::new("max_new_tokens", max_new_tokens, rule).into());
    }
    Ok(())
}
