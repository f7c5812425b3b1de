//! The input and the settings of a completion.

use emberlm_generate::SamplingDefaults;
use emberlm_tokenizer::chat::ChatMessage;

/// Maximum number of tokens of a continuation where neither the program nor the model sets one.
pub const CONTINUATION_TOKENS: usize = 200;
/// Maximum number of tokens of an answer where neither the program nor the model sets one.
pub const ANSWER_TOKENS: usize = 512;

/// The input of a completion.
#[derive(Clone, Debug)]
pub(crate) enum CompletionInput {
    /// A text to continue, or the source of an encoder–decoder.
    Text(String),
    /// A conversation to answer.
    Messages(Vec<ChatMessage>),
}

/// The settings of a completion.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompletionSettings {
    pub sampling: SamplingDefaults,
    pub seed: u64,
    pub stops: Vec<String>,
}
