//! Errors in settings, a prompt or a model's logits.

use emberlm_model::InputError;

/// A setting that cannot be used: its name, its value and the rule it breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} = {value}: {rule}")]
pub struct SettingError {
    /// The setting.
    pub field: &'static str,
    /// Its value as given.
    pub value: String,
    /// The rule.
    pub rule: String,
}

impl SettingError {
    /// An error of `field`, whose `value` breaks `rule`.
    pub fn new(field: &'static str, value: impl ToString, rule: impl Into<String>) -> Self {
        Self {
            field,
            value: value.to_string(),
            rule: rule.into(),
        }
    }
}

/// Logits that no token can be chosen from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogitsError {
    /// None at all.
    #[error("there are no logits to choose a token from")]
    Empty,
    /// One is NaN or infinite: the weights are damaged or the training diverged.
    #[error(
        "the model's logit of token {id} is {value}: its weights are damaged or its training diverged"
    )]
    NotFinite {
        /// The first token whose logit is not a finite number.
        id: usize,
        /// The logit.
        value: String,
    },
    /// A constraint leaves none to choose.
    #[error("the constraint leaves no token to choose: {reason}")]
    NoneAllowed {
        /// The constraint's message.
        reason: String,
    },
}

/// Why nothing, or nothing more, was generated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    /// A setting that cannot be used.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A prompt that the model cannot take.
    #[error(transparent)]
    Prompt(#[from] InputError),
    /// More tokens than the context holds, where it is not to slide.
    #[error(
        "a prompt of {prompt} tokens and {max_new_tokens} new ones are more than the context of {context}"
    )]
    Overflow {
        /// Tokens of the prompt.
        prompt: usize,
        /// At most so many were to follow.
        max_new_tokens: usize,
        /// Tokens that fit.
        context: usize,
    },
    /// Logits that no token can be chosen from.
    #[error(transparent)]
    Logits(#[from] LogitsError),
}
