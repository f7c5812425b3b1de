//! The progress of `prepare`, for a progress bar.

/// A phase of [`crate::prepare()`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The first pass: validates UTF-8 and counts characters.
    Scan,
    /// The second pass: tokenizes and writes.
    Tokenize,
}

/// The progress of [`crate::prepare()`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The start of a phase.
    Start {
        /// The phase.
        phase: Phase,
        /// The number of bytes of the input files that the phase reads, before decompression.
        bytes: u64,
    },
    /// Progress within the current phase.
    Advance {
        /// The number of bytes read since the last report.
        bytes: u64,
    },
}
