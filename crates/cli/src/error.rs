//! The error type of commands, and the only place that prints errors: the failure first, then hints.

mod data;
mod hints;
mod hub;
mod model;
mod train;

use std::io;
use std::path::Path;

use clap::builder::styling::AnsiColor;

use crate::console;
pub use crate::console::warn;

/// An error that ends a command, ready to be printed.
#[derive(Debug)]
pub struct CliError {
    message: String,
    hints: Vec<String>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The operation failed.
    Failed,
    /// The command line is invalid.
    Usage,
    /// The command line is invalid, and clap has already printed the reason.
    ReportedUsage,
    /// The reader of stdout has closed it, as `head` does. This is not a failure.
    OutputClosed,
}

impl CliError {
    /// An operation failed. `message` names the operation and its subject, in lower case and without a full
    /// stop.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hints: Vec::new(),
            kind: Kind::Failed,
        }
    }

    /// The command line is invalid in a way that clap cannot detect.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            kind: Kind::Usage,
            ..Self::new(message)
        }
    }

    /// The command line is invalid, and clap has already printed the reason.
    pub fn reported_usage() -> Self {
        Self {
            kind: Kind::ReportedUsage,
            ..Self::new(String::new())
        }
    }

    /// Adds a hint with a suggested fix.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Adds a hint with the name that was probably meant.
    pub fn did_you_mean(self, name: Option<&str>) -> Self {
        match name {
            Some(name) => self.hint(format!("did you mean `{name}`?")),
            None => self,
        }
    }

    /// Prefixes the message with its context.
    pub fn within(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// The message, without its hint.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The message and the hints, separated by semicolons.
    pub fn in_one_line(&self) -> String {
        let hints = self.hints.iter().map(String::as_str);
        let parts = std::iter::once(self.message.as_str()).chain(hints);
        parts.collect::<Vec<_>>().join("; ")
    }

    /// Wraps an I/O error with the attempted action and path. For `map_err`.
    pub fn io(action: &str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let tried = format!("cannot {action} {}", path.display());
        let path = path.to_owned();
        move |error| {
            let is_content = error.kind() == io::ErrorKind::InvalidData;
            let hint = hints::io(&error).or_else(|| data::advice_on(&path).filter(|_| is_content));
            let this = Self::new(format!("{tried}: {error}"));
            hint.into_iter().fold(this, Self::hint)
        }
    }

    /// Wraps an error of writing to stdout. For `map_err`.
    pub fn stdout(error: io::Error) -> Self {
        // Writing to a terminal that was closed fails with EIO.
        let gone = error.kind() == io::ErrorKind::BrokenPipe || console::stdout_is_terminal();
        if gone {
            return Self {
                kind: Kind::OutputClosed,
                ..Self::new(String::new())
            };
        }
        let hint = hints::io(&error);
        let this = Self::new(format!("cannot write to stdout: {error}"));
        hint.into_iter().fold(this, Self::hint)
    }

    /// Prints the error to stderr and returns the exit code.
    pub fn report(&self) -> u8 {
        match self.kind {
            Kind::OutputClosed => return 0,
            Kind::ReportedUsage => {}
            Kind::Failed | Kind::Usage => {
                console::labelled("error", AnsiColor::Red, &self.message);
            }
        }
        for hint in &self.hints {
            console::labelled("hint", AnsiColor::Cyan, hint);
        }
        match self.kind {
            Kind::Usage | Kind::ReportedUsage => 2,
            _ => 1,
        }
    }

    /// Returns the lines that [`CliError::report`] prints.
    #[cfg(test)]
    pub fn lines(&self, coloured: bool) -> String {
        let error = console::labelled_line("error", AnsiColor::Red, &self.message, coloured);
        let hints = self.hints.iter();
        let hints =
            hints.map(|hint| console::labelled_line("hint", AnsiColor::Cyan, hint, coloured));
        let lines = std::iter::once(error).chain(hints);
        lines.map(|line| line + "\n").collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(error: &CliError, coloured: bool) -> String {
        error.lines(coloured)
    }

    #[test]
    fn hints_follow_the_message() {
        let error = CliError::new("it failed").hint("do this").hint("or that");
        assert_eq!(
            written(&error, false),
            "error: it failed\nhint: do this\nhint: or that\n"
        );
    }

    #[test]
    fn long_messages_are_cut_in_the_middle() {
        let message = format!("begins {} ends", "é".repeat(1_000_000));
        let text = written(&CliError::new(message).hint("do this"), false);
        assert!(text.len() < console::SHOWN_BYTES + 100, "{}", text.len());
        assert!(text.starts_with("error: begins é") && text.ends_with("é ends\nhint: do this\n"));
        assert!(text.contains(" bytes left out) … "));
    }

    #[test]
    fn only_labels_are_coloured() {
        let text = written(&CliError::new("it failed").hint("do this"), true);
        assert!(text.contains("\u{1b}[0m: it failed\n"), "{text:?}");
        assert!(text.ends_with("\u{1b}[0m: do this\n"), "{text:?}");
    }

    #[test]
    fn a_closed_pipe_is_not_a_failure() {
        let error = CliError::stdout(io::ErrorKind::BrokenPipe.into());
        assert_eq!(error.kind, Kind::OutputClosed);
        let error = CliError::stdout(io::ErrorKind::StorageFull.into());
        assert_eq!(error.kind, Kind::Failed);
    }
}
