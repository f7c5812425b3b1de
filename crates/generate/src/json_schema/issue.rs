//! Keywords that are at fault or not supported.

use std::fmt;

/// The treatment of keywords that a grammar cannot express.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// The schema is an error.
    Refuse,
    /// The keyword is dropped, so that more values match than the schema allows.
    Loosen,
}

/// A keyword at fault, with its place in the schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SchemaIssue {
    /// The keyword.
    pub keyword: String,
    /// The JSON pointer of the keyword.
    pub pointer: String,
    /// The violated rule.
    pub rule: String,
}

impl fmt::Display for SchemaIssue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            keyword,
            pointer,
            rule,
        } = self;
        match pointer.is_empty() {
            // The whole schema.
            true => write!(f, "{rule}"),
            false => write!(f, "`{keyword}` at {pointer} {rule}"),
        }
    }
}
