//! Draft tokens of a sequence, and their origin.

/// Number of tokens that a match has at most.
pub(super) const LONGEST_MATCH: usize = 8;

/// The draft tokens at the end of a sequence, during a pass.
#[derive(Debug)]
pub(super) struct Draft {
    pub origin: Origin,
    pub tokens: Vec<u32>,
}

/// The origin of a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    DraftModel,
    /// The text after an earlier occurrence of so many of the newest tokens.
    Match(usize),
}
