//! What a run has to say besides its figures: a checkpoint that could not be written, a step that was skipped.

/// The newest of what was said, and where it goes.
#[derive(Debug, Default)]
pub struct Notes {
    /// Shows a line at once, where no dashboard has the terminal.
    at_once: Option<fn(&str)>,
    newest: String,
    /// How often it has been shown.
    shown: usize,
}

/// A note is shown beside so many lines of the log.
const SHOWN: usize = 20;

impl Notes {
    /// No notes yet. `at_once` shows each, where nothing else has the terminal.
    pub fn new(at_once: Option<fn(&str)>) -> Self {
        Self {
            at_once,
            ..Self::default()
        }
    }

    /// Says something.
    pub fn say(&mut self, text: impl Into<String>) {
        self.newest = text.into();
        self.shown = 0;
        if let Some(show) = self.at_once {
            show(&self.newest);
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
