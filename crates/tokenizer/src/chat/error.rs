//! The error type of chat templates and records.

use std::path::PathBuf;

use crate::TokenizerError;

/// An error of a chat template or a record. Every variant names the culprit and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChatError {
    /// The choice is neither the name of a built-in template nor a path.
    #[error(
        "unknown chat template `{name}`: choose chatml or llama3, or give the path of a .jinja file, of a \
             tokenizer_config.json, or of a folder that holds one"
    )]
    Unknown {
        /// The requested name.
        name: String,
    },
    /// A template file cannot be read or has no template.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A template is invalid, fails, or rejects a conversation.
    #[error("chat template {template}{}: {reason}", line.map(|line| format!(", line {line}")).unwrap_or_default())]
    Template {
        /// The template's name or path.
        template: String,
        /// The 1-based line of the error, if known.
        line: Option<usize>,
        /// The reason.
        reason: String,
    },
    /// A template exceeded a limit and was stopped.
    #[error("chat template {template}: {reason}")]
    Limit {
        /// The template's name or path.
        template: String,
        /// The exceeded limit and its value.
        reason: String,
    },
    /// Rendering failed for a reason other than the template and the record, such as a renderer process that
    /// could not be started.
    #[error("chat template {template} could not be rendered: {reason}")]
    Unavailable {
        /// The template's name or path.
        template: String,
        /// The reason.
        reason: String,
    },
    /// A record is not a valid training example.
    #[error("`{field}` {reason}")]
    Record {
        /// The invalid field, such as `messages[2].role`.
        field: String,
        /// The violated rule.
        reason: String,
    },
    /// A record is not JSON.
    #[error("it is not JSON: {reason} at column {column}")]
    Json {
        /// The 1-based byte column in the last line that was read.
        column: usize,
        /// The parser's message.
        reason: String,
    },
    /// The answer cannot be located in the output of a template without `{% generation %}`.
    #[error(
        "chat template {template} does not show which part of its text is the answer `{field}`: {reason}; put \
         {{% generation %}} and {{% endgeneration %}} around what is to be learnt in it"
    )]
    Unmarked {
        /// The template's name or path.
        template: String,
        /// The message, such as `messages[2]`.
        field: String,
        /// The reason.
        reason: &'static str,
    },
    /// The tokenizer cannot encode the text.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}

impl ChatError {
    /// Returns true if the failure is not specific to the conversation, so that others would fail at the same
    /// cost.
    pub fn is_of_renderer(&self) -> bool {
        matches!(self, Self::Limit { .. } | Self::Unavailable { .. })
    }

    /// Creates the error of a field that violates a rule.
    pub fn record(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Record {
            field: field.into(),
            reason: reason.into(),
        }
    }
}
