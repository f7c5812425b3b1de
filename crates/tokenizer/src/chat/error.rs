//! Errors between a record and its tokens.

use std::path::PathBuf;

use crate::TokenizerError;

/// An error of a chat template or of a record; each names what is at fault and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChatError {
    /// A template was asked for by what is neither the name of a built-in one nor a path.
    #[error(
        "unknown chat template `{name}`: choose chatml or llama3, or give the path of a .jinja file, of a \
             tokenizer_config.json, or of a folder that holds one"
    )]
    Unknown {
        /// The requested name.
        name: String,
    },
    /// A file that should hold a template cannot be read, or holds none.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A template is broken, cannot be run, or refuses a conversation.
    #[error("chat template {template}{}: {reason}", line.map(|line| format!(", line {line}")).unwrap_or_default())]
    Template {
        /// The template's name or path.
        template: String,
        /// The line at fault, from 1, where it is known.
        line: Option<usize>,
        /// The reason.
        reason: String,
    },
    /// A template needs more than it may: it was stopped.
    #[error("chat template {template}: {reason}")]
    Limit {
        /// The template's name or path.
        template: String,
        /// The limit that it exceeds, with its value.
        reason: String,
    },
    /// Nobody could render a text: neither template nor record is at fault.
    #[error("chat template {template} could not be rendered: {reason}")]
    Unavailable {
        /// The template's name or path.
        template: String,
        /// Why not.
        reason: String,
    },
    /// A record is not an example that can be learnt from.
    #[error("`{field}` {reason}")]
    Record {
        /// The field at fault, as `messages[2].role`.
        field: String,
        /// The rule that it breaks.
        reason: String,
    },
    /// A record is not JSON.
    #[error("it is not JSON: {reason} at column {column}")]
    Json {
        /// The place in the record's last line that was read, in bytes from 1.
        column: usize,
        /// The reader's message.
        reason: String,
    },
    /// A template without `{% generation %}` does not show which part of its text is an answer.
    #[error(
        "chat template {template} does not show which part of its text is the answer `{field}`: {reason}; put \
         {{% generation %}} and {{% endgeneration %}} around what is to be learnt in it"
    )]
    Unmarked {
        /// The template's name or path.
        template: String,
        /// The message, as `messages[2]`.
        field: String,
        /// Why not.
        reason: &'static str,
    },
    /// The tokenizer cannot encode the text.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}

impl ChatError {
    /// Returns true if the template would fail for other conversations too, at the same cost.
    pub fn is_of_renderer(&self) -> bool {
        matches!(self, Self::Limit { .. } | Self::Unavailable { .. })
    }

    /// The error of the field `field`, which breaks the rule `reason`.
    pub(crate) fn record(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Record {
            field: field.into(),
            reason: reason.into(),
        }
    }
}
