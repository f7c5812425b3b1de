//! Errors of settings, prompts and logits.

use emberlm_model::InputError;

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} = {value}: {rule}")]
pub struct SettingError {
    /// The name of the setting.
    pub field: &'static str,
    /// The value as given.
    pub value: String,
    /// The violated rule.
    pub rule: String,
}

impl SettingError {
    /// Creates an error for `field`, whose `value` violates `rule`.
    pub fn new(field: &'static str, value: impl ToString, rule: impl Into<String>) -> Self {
        Self {
            field,
            value: value.to_string(),
            rule: rule.into(),
        }
    }
}

/// No token can be chosen from the logits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogitsError {
    /// There are no logits.
    #[error("no logits to choose a token from")]
    Empty,
    /// A logit is NaN or infinite: the weights are damaged or the training diverged.
    #[error(
        "the model's logit of token {id} is {value}: its weights are damaged or its training diverged"
    )]
    NotFinite {
        /// The first token with a non-finite logit.
        id: usize,
        /// The logit.
        value: String,
    },
    /// A constraint allows no token.
    #[error("the constraint allows no token: {reason}")]
    NoneAllowed {
        /// The constraint's message.
        reason: String,
    },
}

/// An error that prevents or ends generation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    /// A setting is invalid.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The model does not support the prompt.
    #[error(transparent)]
    Prompt(#[from] InputError),
    /// The prompt and the new tokens exceed the context, and sliding is disabled.
    #[error(
        "a prompt of {prompt} tokens and {max_new_tokens} new ones are more than the context of {context}"
    )]
    Overflow {
        /// The number of tokens of the prompt.
        prompt: usize,
        /// The requested maximum number of new tokens.
        max_new_tokens: usize,
        /// The context length in tokens.
        context: usize,
    },
    /// No token can be chosen from the logits.
    #[error(transparent)]
    Logits(#[from] LogitsError),
}
