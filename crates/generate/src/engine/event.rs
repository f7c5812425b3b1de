//! The events of an engine.

use std::sync::Arc;

use super::RequestId;
use crate::chooser::Chosen;
use crate::error::GenerateError;
use crate::generator::Finish;

/// An event of one sample of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The request.
    pub request: RequestId,
    /// Index of the sample, or of the text of an embedding request.
    pub sample: usize,
    /// The event.
    pub kind: EventKind,
}

/// An event of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// The sample has a slot, and its prompt is read next. A sample without tokens does not have this event.
    Started,
    /// The next tokens of the sample's prompt with their log-probabilities: [`crate::Request::prompt_logprobs`]. The first token
    /// of a prompt has none. All of them are reported before the first generated token.
    Prompt(Arc<[Chosen]>),
    /// A token was generated.
    Token(Chosen),
    /// A text's mean-pooled final hidden states, `[d_model]`, or of an encoder, its vector or the scores of its labels; nothing
    /// follows for this text.
    Embedded(Vec<f32>),
    /// The sample ended. It has no further events.
    Finished(Ended),
    /// The sample failed. It has no further events. Other samples and requests continue.
    Failed(GenerateError),
}

/// The end of a sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// The reason for the end.
    pub finish: Finish,
    /// The token of [`Finish::Stop`], with its log-probabilities if they are requested.
    pub stop_token: Option<Chosen>,
    /// Number of tokens cut off at the prompt's beginning, because the context was too small.
    pub truncated_prompt: usize,
    /// Number of prompt tokens that were reused from a cache.
    pub reused_prompt: usize,
    /// The number of times that the context was full and continued from its newest half.
    pub slides: usize,
}

/// The current work and the totals of an engine, for a server's metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Samples and texts to embed that have a slot.
    pub running: usize,
    /// Samples among them that are paused: [`crate::Engine::pause`].
    pub paused: usize,
    /// Requests waiting for slots.
    pub waiting: usize,
    /// Free slots.
    pub free_slots: usize,
    /// Prompt tokens reused from caches, in total.
    pub reused_tokens: u64,
    /// Tokens read from prompts, and read again from full contexts, in total.
    pub prefilled_tokens: u64,
    /// Generated tokens, in total.
    pub made_tokens: u64,
    /// Generated tokens that the model read to generate the next one, in total.
    pub decoded_tokens: u64,
    /// Passes over the weights.
    pub passes: u64,
    /// Draft tokens that were verified, in total.
    pub drafted_tokens: u64,
    /// Draft tokens among them that were accepted.
    pub accepted_tokens: u64,
}

impl Counts {
    /// The current work, with totals that continue those of an earlier engine of the same model.
    #[must_use]
    pub fn after(self, earlier: &Self) -> Self {
        Self {
            reused_tokens: self.reused_tokens + earlier.reused_tokens,
            prefilled_tokens: self.prefilled_tokens + earlier.prefilled_tokens,
            made_tokens: self.made_tokens + earlier.made_tokens,
            decoded_tokens: self.decoded_tokens + earlier.decoded_tokens,
            passes: self.passes + earlier.passes,
            drafted_tokens: self.drafted_tokens + earlier.drafted_tokens,
            accepted_tokens: self.accepted_tokens + earlier.accepted_tokens,
            ..self
        }
    }
}
