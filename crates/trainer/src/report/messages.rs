//! Messages of a run other than its metrics, such as a failed checkpoint or a skipped step.

use super::Say;

/// The newest message of a run, and when to show it.
#[derive(Default)]
pub struct Messages {
    /// Prints a message immediately, unless a dashboard owns the terminal.
    at_once: Option<Say>,
    newest: String,
    /// The number of log lines that it was shown with.
    shown: usize,
    /// The messages before the first log line.
    first: Vec<String>,
    /// True after the first log line.
    logged: bool,
}

/// The number of log lines that show the newest message.
const SHOWN: usize = 20;

impl Messages {
    /// No messages yet. `at_once` prints each message immediately; `None` if a dashboard owns the terminal.
    pub fn new(at_once: Option<Say>) -> Self {
        Self {
            at_once,
            ..Self::default()
        }
    }

    /// Sets the newest message.
    pub fn say(&mut self, text: impl Into<String>) {
        self.newest = text.into();
        self.shown = 0;
        if !self.logged {
            self.first.push(self.newest.clone());
        }
        if let Some(show) = &self.at_once {
            show(&self.newest);
        }
    }

    /// The messages before the first log line, as paragraphs.
    pub fn first(&self) -> String {
        self.first.join("\n\n")
    }

    /// The newest message, for one log line. Empty after it was shown often enough.
    pub fn shown(&mut self) -> &str {
        self.logged = true;
        self.shown += 1;
        match self.shown {
            0..=SHOWN => &self.newest,
            _ => "",
        }
    }
}
