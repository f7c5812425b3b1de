//! The functions that an answer may call.

use serde_json::{Map, Value};

/// A function that may be called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function<'a> {
    /// The name: letters, digits, `_` and `-`.
    pub name: &'a str,
    /// The simplified JSON schema of the arguments object. `None` if the function has no parameters.
    pub parameters: Option<&'a Map<String, Value>>,
}

/// The function calls that an answer may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ToolUse {
    /// True if the answer must start with a call; false if it may also be text.
    pub required: bool,
    /// True if the answer may have several calls.
    pub parallel: bool,
}
