//! What is asked of an engine.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use emberlm_model::{DecoderConfig, InputError};

use super::EngineConfig;
use crate::check::{check_prompt, check_stop_tokens};
use crate::chooser::{Chooser, ChooserConfig};
use crate::error::{GenerateError, SettingError};

/// What becomes of a sequence that the context has no room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// A request whose prompt and new tokens may be more than the context is refused.
    #[default]
    Refuse,
    /// A long prompt keeps its newest tokens, and a full context its newest half, which is read again.
    Slide,
}

/// One prompt, and what is to follow it.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// At least one token.
    pub prompt: Vec<u32>,
    /// How many continuations, at most as many as the engine has slots: the prompt is read once for all of them.
    pub samples: usize,
    /// At most so many tokens each.
    pub max_new_tokens: usize,
    /// A continuation ends when one of these is chosen; it is not among its tokens.
    pub stop_tokens: Vec<u32>,
    /// How a token is chosen; each sample draws from a stream of its own of the seed.
    pub chooser: ChooserConfig,
    /// What becomes of a sequence that the context has no room for.
    pub overflow: Overflow,
}

impl Default for Request {
    /// One sample of 256 tokens of the model's own distribution, without stop tokens, of a prompt that is yet to be given.
    fn default() -> Self {
        Self {
            prompt: Vec::new(),
            samples: 1,
            max_new_tokens: 256,
            stop_tokens: Vec::new(),
            chooser: ChooserConfig::default(),
            overflow: Overflow::default(),
        }
    }
}

/// Names a request to its engine, which gives no number twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(super) u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Texts that wait to be embedded: the rest of one request.
#[derive(Debug)]
pub(super) struct WaitingEmbedding {
    pub id: RequestId,
    /// Each with its number in the request.
    pub texts: VecDeque<(usize, Vec<u32>)>,
    /// True if one of its texts was given a slot: the others are embedded by the same decoder.
    pub begun: bool,
}

impl WaitingEmbedding {
    /// Checks the texts.
    pub fn new(
        id: RequestId,
        texts: Vec<Vec<u32>>,
        engine: &EngineConfig,
        model: &DecoderConfig,
    ) -> Result<Self, GenerateError> {
        if texts.is_empty() {
            return Err(InputError::Empty.into());
        }
        for text in &texts {
            check_prompt(model, text)?;
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
            begun: false,
        })
    }

    /// Returns true if this model can take it.
    pub fn check(&self, model: &DecoderConfig) -> Result<(), GenerateError> {
        for (_, text) in &self.texts {
            check_prompt(model, text)?;
        }
        Ok(())
    }
}

/// One sample of a request.
#[derive(Debug)]
pub(super) struct Voice {
    /// Its number, from 0.
    pub sample: usize,
    pub chooser: Chooser,
}

/// A request that was accepted and has no slots yet.
#[derive(Debug)]
pub(super) struct Waiting {
    pub id: RequestId,
    /// The tokens that the context has room for.
    pub prompt: Vec<u32>,
    /// Tokens at the prompt's beginning that it has no room for.
    pub truncated_prompt: usize,
    /// At least one.
    pub voices: Vec<Voice>,
    pub max_new_tokens: usize,
    pub stop_tokens: Arc<[u32]>,
}

impl Waiting {
    /// Checks a request.
    pub fn new(
        id: RequestId,
        request: Request,
        engine: &EngineConfig,
        model: &DecoderConfig,
    ) -> Result<Self, GenerateError> {
        let Request {
            mut prompt,
            samples,
            max_new_tokens,
            stop_tokens,
            chooser,
            overflow,
        } = request;
        if !(1..=engine.slots).contains(&samples) {
            let rule = format!("must be between 1 and {}, the engine's slots", engine.slots);
            return Err(SettingError::new("samples", samples, rule).into());
        }
        let context = engine.capacity;
        let len = prompt.len();
        if overflow == Overflow::Refuse && len.saturating_add(max_new_tokens) > context {
            return Err(GenerateError::Overflow {
                prompt: len,
                max_new_tokens,
                context,
            });
        }
        let truncated_prompt = len.saturating_sub(context);
        let voice = |sample| {
            let chooser = Chooser::new(&chooser, &prompt, model.vocab_size, sample as u64)?;
            Ok(Voice { sample, chooser })
        };
        let voices = (0..samples)
            .map(voice)
            .collect::<Result<_, SettingError>>()?;
        check_prompt(model, &prompt)?;
        prompt.drain(..truncated_prompt);
        let waiting = Self {
            id,
            prompt,
            truncated_prompt,
            voices,
            max_new_tokens,
            stop_tokens: stop_tokens.into(),
        };
        waiting.check(model)?;
        Ok(waiting)
    }

    /// Whether this model can take it.
    pub fn check(&self, model: &DecoderConfig) -> Result<(), GenerateError> {
        check_stop_tokens(model, &self.stop_tokens)?;
        check_prompt(model, &self.prompt)?;
        for voice in &self.voices {
            voice.chooser.check(model.vocab_size)?;
        }
        Ok(())
    }
}
