//! The deltas of answers that parsers find.

/// A delta of a parsed answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerDelta {
    /// Reasoning before or between texts.
    Reasoning(String),
    /// Text for the user, outside of reasoning and calls.
    Text(String),
    /// A call starts. Calls are numbered in the order of their start.
    Call {
        /// The function's name.
        name: String,
    },
    /// More of the current call's arguments.
    Arguments(String),
}
