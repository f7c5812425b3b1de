//! Messages of a run other than its metrics: a checkpoint that could not be written, a step that was skipped.

/// The newest message of a run, and its destination.
#[derive(Debug, Default)]
pub struct Messages {
    /// Shows a line at once, where no dashboard has the terminal.
    at_once: Option<fn(&str)>,
    newest: String,
    /// The number of times that it has been shown.
    shown: usize,
    /// The messages before the first line of the log.
    first: Vec<String>,
    /// True once the log has a line.
    logged: bool,
}

/// The number of log lines beside which a message is shown.
const SHOWN: usize = 20;

impl Messages {
    /// No messages yet. `at_once` shows each, where nothing else has the terminal.
    pub fn new(at_once: Option<fn(&str)>) -> Self {
        Self {
            at_once,
            ..Self::default()
        }
    }

    /// Replaces the newest message.
    pub fn say(&mut self, text: impl Into<String>) {
        self.newest = text.into();
        self.shown = 0;
        if !self.logged {
            self.first.push(self.newest.clone());
        }
        if let Some(show) = self.at_once {
            show(&self.newest);
        }
    }

    /// The messages before the first line of the log, as paragraphs.
    pub fn first(&self) -> String {
        self.first.join("\n\n")
    }

    /// The newest message; empty after it was shown often enough.
    pub fn shown(&mut self) -> &str {
        self.logged = true;
        self.shown += 1;
        match self.shown {
            0..=SHOWN => &self.newest,
            _ => "",
        }
    }
}
