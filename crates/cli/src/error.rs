//! The one place that prints errors: what failed and where, then what to do about it.

mod hints;

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use clap::builder::styling::{AnsiColor, Style};

/// Why a command ended early, ready to be shown.
#[derive(Debug)]
pub struct CliError {
    message: String,
    hints: Vec<String>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It was tried, and failed.
    Failed,
    /// The command line asks for what cannot be.
    Usage,
    /// Whoever read the output has stopped reading, as `head` does: nothing is wrong.
    OutputClosed,
}

impl CliError {
    /// Something failed: `message` says what and where, in lower case and without a full stop.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hints: Vec::new(),
            kind: Kind::Failed,
        }
    }

    /// The command line is wrong in a way that its parser cannot know.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            kind: Kind::Usage,
            ..Self::new(message)
        }
    }

    /// Adds a line on what to do.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Says before the message what it is about.
    pub fn within(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// What failed, without what to do.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// For `map_err`: an operating system's error, with what was tried and on what.
    pub fn io(action: &str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let tried = format!("cannot {action} {}", path.display());
        move |error| {
            let hint = hints::io(&error);
            let this = Self::new(format!("{tried}: {error}"));
            hint.into_iter().fold(this, Self::hint)
        }
    }

    /// For `map_err`: writing to stdout failed.
    pub fn stdout(error: io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::BrokenPipe => Kind::OutputClosed,
            _ => Kind::Failed,
        };
        Self {
            kind,
            ..Self::new(format!("cannot write to stdout: {error}"))
        }
    }

    /// Shows it on stderr and gives the process's exit code.
    pub fn report(&self) -> u8 {
        if self.kind == Kind::OutputClosed {
            return 0;
        }
        let stderr = io::stderr();
        let coloured = coloured(&stderr);
        // Where stderr itself cannot be written to there is nobody left to tell.
        let _ = self.write(&mut stderr.lock(), coloured);
        match self.kind {
            Kind::Usage => 2,
            Kind::Failed | Kind::OutputClosed => 1,
        }
    }

    /// Writes it as [`CliError::report`] does.
    pub fn write(&self, out: &mut impl Write, coloured: bool) -> io::Result<()> {
        let style = |colour: AnsiColor| match coloured {
            true => colour.on_default().bold(),
            false => Style::new(),
        };
        let (error, hint) = (style(AnsiColor::Red), style(AnsiColor::Cyan));
        writeln!(out, "{error}error{error:#}: {}", self.message)?;
        for line in &self.hints {
            writeln!(out, "{hint}hint{hint:#}: {line}")?;
        }
        Ok(())
    }
}

/// Whether what is written to stderr may be in colour.
fn coloured(stderr: &io::Stderr) -> bool {
    stderr.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// Tells on stderr of something that did not keep the command from going on.
pub fn warn(message: &str) {
    let stderr = io::stderr();
    let warning = match coloured(&stderr) {
        true => AnsiColor::Yellow.on_default().bold(),
        false => Style::new(),
    };
    let _ = writeln!(stderr.lock(), "{warning}warning{warning:#}: {message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(error: &CliError, coloured: bool) -> String {
        let mut out = Vec::new();
        error.write(&mut out, coloured).unwrap();
        String::from_utf8(out).unwrap()
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
    fn colour_is_only_on_the_labels() {
        let text = written(&CliError::new("it failed").hint("do this"), true);
        assert!(text.contains("\u{1b}[0m: it failed\n"), "{text:?}");
        assert!(text.ends_with("\u{1b}[0m: do this\n"), "{text:?}");
    }

    #[test]
    fn a_reader_who_left_is_no_failure() {
        let error = CliError::stdout(io::ErrorKind::BrokenPipe.into());
        assert_eq!(error.kind, Kind::OutputClosed);
        let error = CliError::stdout(io::ErrorKind::StorageFull.into());
        assert_eq!(error.kind, Kind::Failed);
    }
}
