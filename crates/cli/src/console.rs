//! The only module that writes to stdout and stderr.
//!
//! Two rules hold for all output. A terminal gets no control characters from a text that the program did not write itself:
//! on stderr never, and on stdout where that is a terminal; in a pipe or a file stdout is exact to the byte. And what
//! cannot be written to stderr is lost without a panic or an error: nobody is left to read it.

#![expect(
    clippy::disallowed_methods,
    reason = "everything else goes through this module"
)]

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use clap::builder::styling::{AnsiColor, Style};
use emberlm_system::text::{escaped, neutralized};
use serde::Serialize;

use crate::error::CliError;

/// Which streams were terminals when they were first asked about. A terminal that was closed since does not say that it
/// is one.
#[derive(Clone, Copy)]
struct Terminals {
    stdout: bool,
    stderr: bool,
}

fn terminals() -> Terminals {
    static FOUND: OnceLock<Terminals> = OnceLock::new();
    *FOUND.get_or_init(|| Terminals {
        stdout: io::stdout().is_terminal(),
        stderr: io::stderr().is_terminal(),
    })
}

/// Looks which streams are terminals, before one of them can be closed.
pub fn start() {
    terminals();
}

/// Returns true if stdout is a terminal.
pub fn stdout_is_terminal() -> bool {
    terminals().stdout
}

/// Returns true if stderr is a terminal.
pub fn stderr_is_terminal() -> bool {
    terminals().stderr
}

/// Writes `text` to stdout at once, without waiting for a line's end.
///
/// # Errors
/// Stdout cannot be written to.
pub fn print(text: &str) -> Result<(), CliError> {
    match stdout_is_terminal() {
        true => write_out(&neutralized(text)),
        false => write_out(text),
    }
}

/// Writes `value` to stdout as a line of JSON.
///
/// # Errors
/// The value cannot be JSON, or stdout cannot be written to.
pub fn print_json(value: &impl Serialize) -> Result<(), CliError> {
    let mut text = serde_json::to_string(value)
        .map_err(|error| CliError::new(format!("cannot write the result as JSON: {error}")))?;
    if stdout_is_terminal() {
        text = escaped_json(&text);
    }
    text.push('\n');
    write_out(&text)
}

/// JSON whose strings hold no character that a terminal may not show: all of them have an escape of the same meaning.
fn escaped_json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match emberlm_system::text::is_harmless(c) {
            true => shown.push(c),
            // None of them is beyond the first 65,536.
            false => shown += &format!("\\u{:04x}", u32::from(c)),
        }
    }
    shown
}

/// Writes bytes to stdout that are no text of anybody else's.
fn write_out(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(CliError::stdout)
}

/// Writes what is left in stdout's buffer.
pub fn flush() {
    let _ = io::stdout().flush();
}

/// Columns of the terminal that stdout is, if it is one.
#[cfg(unix)]
pub fn columns() -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(size.ws_col)
}

/// Columns of the terminal that stdout is, if it is one.
#[cfg(not(unix))]
pub fn columns() -> Option<u16> {
    None
}

/// Writes one line to stderr, whatever a name in it holds.
pub fn note(line: impl Display) {
    let line = line.to_string();
    write_line(&escaped(&line));
}

/// Writes `value` to stderr as a line of JSON, whatever a text in it holds.
pub fn note_json(value: &impl Serialize) {
    // No value of this program is beyond JSON.
    if let Ok(text) = serde_json::to_string(value) {
        write_line(&escaped_json(&text));
    }
}

/// Reports on stderr something that did not keep the command from continuing.
pub fn warn(message: &str) {
    labelled("warning", AnsiColor::Yellow, message);
}

/// Writes an error's message, or what to do about it, to stderr.
pub fn labelled(label: &str, colour: AnsiColor, message: &str) {
    write_line(&labelled_line(label, colour, message, stderr_is_coloured()));
}

/// A line with a coloured label. The message is on one line, so that no name in it can look like another message.
pub fn labelled_line(label: &str, colour: AnsiColor, message: &str, coloured: bool) -> String {
    let style = match coloured {
        true => colour.on_default().bold(),
        false => Style::new(),
    };
    format!("{style}{label}{style:#}: {}", escaped(&shortened(message)))
}

/// The most bytes of a message that are shown: names and values from files can have any length.
pub const SHOWN_BYTES: usize = 8 << 10;

/// The message, without the middle of one that is too long for any reader.
fn shortened(message: &str) -> Cow<'_, str> {
    if message.len() <= SHOWN_BYTES {
        return Cow::Borrowed(message);
    }
    let head = &message[..message.floor_char_boundary(SHOWN_BYTES / 2)];
    let tail = &message[message.ceil_char_boundary(message.len() - SHOWN_BYTES / 2)..];
    let left_out = message.len() - head.len() - tail.len();
    Cow::Owned(format!("{head} … ({left_out} bytes left out) … {tail}"))
}

/// Returns true if what is written to stderr may be in colour.
fn stderr_is_coloured() -> bool {
    stderr_is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Writes a line to stderr in one piece, so that lines of several threads or processes do not mix.
fn write_line(line: &str) {
    let _ = io::stderr()
        .lock()
        .write_all(format!("{line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_for_a_terminal_means_the_same() {
        let value = "a\u{1b}\u{9b}\u{202e}\u{7f}\n\"漢";
        let text = serde_json::to_string(value).unwrap();
        let shown = escaped_json(&text);
        assert!(shown.chars().all(emberlm_system::text::is_harmless));
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), value);
    }

    #[test]
    fn a_message_cannot_look_like_another() {
        let line = labelled_line("error", AnsiColor::Red, "no a\nhint: rm -rf", false);
        assert_eq!(line, r"error: no a\nhint: rm -rf");
    }
}
