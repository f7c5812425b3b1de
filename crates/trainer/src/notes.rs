//! What a run has to say besides its figures: a checkpoint that could not be written, a step that was skipped.

use std::io::Write;

/// The newest of what was said, and where it goes.
#[derive(Debug, Default)]
pub struct Notes {
    /// Whether nothing else writes to the terminal, so that lines can go to stderr at once.
    to_stderr: bool,
    newest: String,
}

impl Notes {
    /// Nothing said yet.
    pub fn new(to_stderr: bool) -> Self {
        Self {
            to_stderr,
            ..Self::default()
        }
    }

    /// Says something.
    pub fn say(&mut self, text: impl Into<String>) {
        self.newest = text.into();
        if self.to_stderr {
            // Nothing can be done about a closed stderr, and a run should not end for it.
            let _ = writeln!(std::io::stderr(), "{}", self.newest);
        }
    }

    /// What was said last.
    pub fn newest(&self) -> &str {
        &self.newest
    }
}
