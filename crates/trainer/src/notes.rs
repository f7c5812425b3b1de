//! What a run has to say besides its figures: a checkpoint that could not be written, a step that was skipped.

use std::io::Write;

/// The newest of what was said, and where it goes.
#[derive(Debug, Default)]
pub struct Notes {
    /// Whether nothing else writes to the terminal, so that lines can go to stderr at once.
    to_stderr: bool,
    newest: String,
    /// How often it has been shown.
    shown: usize,
}

/// A note is shown beside so many lines of the log.
const SHOWN: usize = 20;

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
        self.shown = 0;
        if self.to_stderr {
            // Nothing can be done about a closed stderr, and a run should not end for it.
            let _ = writeln!(std::io::stderr(), "{}", self.newest);
        }
    }

    /// What was said last, for a while.
    pub fn shown(&mut self) -> &str {
        self.shown += 1;
        match self.shown {
            0..=SHOWN => &self.newest,
            _ => "",
        }
    }
}
