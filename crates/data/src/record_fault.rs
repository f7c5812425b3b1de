//! Faults of individual records.

use std::fmt;

use emberlm_tokenizer::chat::ChatError;

/// The reason that a record is not a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordFault {
    /// The line is not valid JSON.
    Json {
        /// The position in the line, in bytes from 1.
        column: usize,
        /// The message of the JSON parser.
        reason: String,
    },
    /// The field that should hold the text is missing or is not a string.
    Field(String),
    /// The record is valid JSON, but not a conversation that the chat template can render.
    Conversation(String),
    /// A quoted field of a table has no end.
    Quote(String),
    /// The record is not UTF-8, is too long, or has a different number of fields than the header.
    Malformed(String),
}

impl RecordFault {
    /// Converts a parse error of one line.
    pub(crate) fn json(error: &serde_json::Error) -> Self {
        let position = format!(" at line {} column {}", error.line(), error.column());
        let message = error.to_string();
        let reason = message.strip_suffix(&position).unwrap_or(&message);
        Self::Json {
            column: error.column(),
            reason: reason.to_owned(),
        }
    }

    /// The position in the record, in bytes from 1, if known.
    pub fn column(&self) -> Option<usize> {
        match self {
            Self::Json { column, .. } => Some(*column),
            Self::Field(_) | Self::Conversation(_) | Self::Quote(_) | Self::Malformed(_) => None,
        }
    }
}

impl fmt::Display for RecordFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Typical for a file with one array, or with objects that span several lines.
            Self::Json { reason, .. } if reason.starts_with("EOF") => {
                write!(f, "invalid JSON: {reason}; a record is one line")
            }
            Self::Json { reason, .. } => write!(f, "invalid JSON: {reason}"),
            Self::Field(reason)
            | Self::Conversation(reason)
            | Self::Quote(reason)
            | Self::Malformed(reason) => f.write_str(reason),
        }
    }
}

impl From<&str> for RecordFault {
    fn from(reason: &str) -> Self {
        Self::Malformed(reason.to_owned())
    }
}

impl From<String> for RecordFault {
    fn from(reason: String) -> Self {
        Self::Malformed(reason)
    }
}

impl From<ChatError> for RecordFault {
    fn from(error: ChatError) -> Self {
        match error {
            ChatError::Json { column, reason } => Self::Json { column, reason },
            error => Self::Conversation(error.to_string()),
        }
    }
}
