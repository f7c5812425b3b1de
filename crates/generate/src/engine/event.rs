//! The events of an engine.

use super::RequestId;
use crate::chooser::Chosen;
use crate::error::GenerateError;
use crate::plain::Finish;

/// Something happened to one sample of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The request.
    pub request: RequestId,
    /// Which of its samples, or of an embedding request's texts, from 0.
    pub sample: usize,
    /// The event.
    pub kind: EventKind,
}

/// An event of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// It was given a slot, and its prompt is read next. A sample of no tokens has no such event.
    Started,
    /// A token was made.
    Token(Chosen),
    /// A text's mean-pooled final hidden states, `[d_model]`; nothing follows for this text.
    Embedded(Vec<f32>),
    /// It came to its end; nothing follows.
    Finished(Ended),
    /// It failed; nothing follows. Other samples and requests continue.
    Failed(GenerateError),
}

/// The end of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Why there are no more tokens.
    pub finish: Finish,
    /// Tokens at the prompt's beginning that the context had no room for.
    pub truncated_prompt: usize,
    /// Tokens of the prompt that were not read again, since a cache held them.
    pub reused_prompt: usize,
    /// The number of times that the context was full and continued from its newest half.
    pub slides: usize,
}

/// The current work and the totals of an engine, for a server's metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Samples, and texts to embed, that have a slot.
    pub running: usize,
    /// Samples among them that are paused: [`crate::Engine::pause`].
    pub paused: usize,
    /// Requests that wait for slots.
    pub waiting: usize,
    /// Slots that no sample has.
    pub free_slots: usize,
    /// Tokens of prompts that a cache held, over all requests so far.
    pub reused_tokens: u64,
    /// Tokens of prompts that were read, and those of full contexts that were read again.
    pub prefilled_tokens: u64,
    /// Tokens that were made.
    pub made_tokens: u64,
    /// Those of them that the model read for the next one.
    pub decoded_tokens: u64,
    /// Passes over the weights.
    pub passes: u64,
}
