//! The progress of `prepare`, for a progress bar.

/// The phase of [`crate::prepare()`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reading once: is it UTF-8, how many characters has it.
    Scan,
    /// Tokenizing and writing.
    Tokenize,
}

/// The progress of [`crate::prepare()`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A phase begins.
    Start {
        /// Which.
        phase: Phase,
        /// The number of bytes of the inputs' files that it reads, compressed where they are.
        bytes: u64,
    },
    /// The present phase has gone through some more bytes.
    Advance {
        /// The number of further bytes.
        bytes: u64,
    },
}
