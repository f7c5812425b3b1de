//! The error of a [`TextModel`](crate::TextModel).

use emberlm_checkpoint::ModelError;
use emberlm_generate::{GenerateError, SettingError};
use emberlm_model::InputError;
use emberlm_tokenizer::chat::ChatError;
use emberlm_tokenizer::{StopStringError, TokenizerError};

/// A model cannot be opened, or cannot process a text.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The model cannot be opened.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The tokenizer cannot encode a text.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The chat template rejects the conversation.
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// A setting is out of range, the prompt is too long, or generation failed.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// A stop string is empty or too long.
    #[error(transparent)]
    Stop(#[from] StopStringError),
    /// The model has no chat template.
    #[error("the model has no chat template; choose one with `OpenOptions::chat_template`")]
    NoChatTemplate,
    /// Models of this kind do not support the operation.
    #[error("an {kind} cannot {operation}")]
    Unsupported {
        /// The kind of the model.
        kind: &'static str,
        /// The operation.
        operation: &'static str,
    },
}

impl From<SettingError> for Error {
    fn from(error: SettingError) -> Self {
        Self::Generate(error.into())
    }
}

impl From<InputError> for Error {
    fn from(error: InputError) -> Self {
        Self::Generate(error.into())
    }
}
