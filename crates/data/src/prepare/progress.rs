//! How far it is, for a progress bar.

/// What [`crate::prepare()`] is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reading once: is it UTF-8, how many characters has it.
    Scan,
    /// Tokenizing and writing.
    Tokenize,
}

/// How far [`crate::prepare()`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A phase begins.
    Start {
        /// Which.
        phase: Phase,
        /// How many bytes of the inputs' files it will go through, compressed where they are.
        bytes: u64,
    },
    /// The present phase has gone through some more bytes.
    Advance {
        /// How many more.
        bytes: u64,
    },
}
