//! The only module that writes to stdout and stderr.
//!
//! Two rules apply to all output:
//!
//! 1. Control characters from text that the program did not write never reach a terminal. They are always
//!    escaped on stderr, and on stdout if it is a terminal. Piped or redirected stdout is byte-exact.
//! 2. Failed writes to stderr are ignored: there is nowhere left to report them.

#![expect(
    clippy::disallowed_methods,
    reason = "everything else goes through this module"
)]

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::builder::styling::{AnsiColor, Style};
use emberlm_system::text::{escaped, neutralized};
use serde::Serialize;

/// The streams that were terminals at startup. A terminal that was closed since no longer reports that it is
/// one.
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

/// Detects which streams are terminals. Must run before one of them can be closed.
pub fn start() {
    terminals();
}

/// Returns true if stdout is a terminal that can move its cursor.
pub fn stdout_is_screen() -> bool {
    stdout_is_terminal() && std::env::var_os("TERM").is_none_or(|name| name != "dumb")
}

pub fn stdout_is_terminal() -> bool {
    terminals().stdout
}

/// Returns true if output on stdout may be styled.
pub fn stdout_is_styled() -> bool {
    stdout_is_screen() && allows_styles()
}

/// Returns true unless the user asks for plain output.
fn allows_styles() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

pub fn stderr_is_terminal() -> bool {
    terminals().stderr
}

/// Writes `text` to stdout and flushes it, even in the middle of a line.
///
/// # Errors
/// Returns an error if stdout cannot be written.
pub fn print(text: &str) -> io::Result<()> {
    match stdout_is_terminal() {
        true => write_out(&neutralized(text)),
        false => write_out(text),
    }
}

/// Writes `text` to stdout like [`print`], dimmed. Only for a stdout that [`stdout_is_styled`].
///
/// # Errors
/// Returns an error if stdout cannot be written.
pub fn print_dimmed(text: &str) -> io::Result<()> {
    let style = Style::new().dimmed();
    write_out(&format!("{style}{}{style:#}", neutralized(text)))
}

/// Writes JSON to stdout as one line.
///
/// # Errors
/// Returns an error if stdout cannot be written.
pub fn print_json(mut text: String) -> io::Result<()> {
    if stdout_is_terminal() {
        text = escaped_json(&text);
    }
    text.push('\n');
    write_out(&text)
}

/// Escapes every character in JSON strings that must not reach a terminal. The JSON keeps its meaning.
fn escaped_json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match emberlm_system::text::is_harmless(c) {
            true => shown.push(c),
            // All of these characters are in the Basic Multilingual Plane, so four hex digits suffice.
            false => shown += &format!("\\u{:04x}", u32::from(c)),
        }
    }
    shown
}

/// Writes text to stdout that is already safe for it.
fn write_out(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Flushes stdout.
pub fn flush() {
    let _ = io::stdout().flush();
}

/// The number of columns of stdout's terminal, if it is one.
#[cfg(unix)]
pub fn columns() -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(size.ws_col)
}

/// The number of columns of stdout's terminal, if it is one.
#[cfg(not(unix))]
pub fn columns() -> Option<u16> {
    None
}

/// True in a process that leaves notes and warnings to another one.
static MUTED: AtomicBool = AtomicBool::new(false);

/// Makes [`note`] and [`warn`] print nothing from now on. Errors are still printed.
pub fn mute() {
    MUTED.store(true, Ordering::Relaxed);
}

fn is_muted() -> bool {
    MUTED.load(Ordering::Relaxed)
}

/// Writes one line to stderr. Control characters are escaped.
pub fn note(line: impl Display) {
    if is_muted() {
        return;
    }
    let line = line.to_string();
    write_line(&escaped(&line));
}

/// Writes `value` to stderr as one line of JSON. Control characters are escaped.
pub fn note_json(value: &impl Serialize) {
    // Serializing the program's own types does not fail.
    if let Ok(text) = serde_json::to_string(value) {
        write_line(&escaped_json(&text));
    }
}

/// Prints a warning to stderr: a problem that did not stop the command.
pub fn warn(message: &str) {
    if is_muted() {
        return;
    }
    labelled("warning", AnsiColor::Yellow, message);
}

/// Writes a labelled message, such as an error or a hint, to stderr.
pub fn labelled(label: &str, colour: AnsiColor, message: &str) {
    write_line(&labelled_line(label, colour, message, stderr_is_coloured()));
}

/// Formats a line with a coloured label. The message is escaped to a single line, so that a name in it cannot
/// imitate another message.
pub fn labelled_line(label: &str, colour: AnsiColor, message: &str, coloured: bool) -> String {
    let style = match coloured {
        true => colour.on_default().bold(),
        false => Style::new(),
    };
    format!("{style}{label}{style:#}: {}", escaped(&shortened(message)))
}

/// Limit on a printed message, in bytes. Names and values from files can have any length.
pub const SHOWN_BYTES: usize = 8 << 10;

/// Cuts the middle out of a message longer than [`SHOWN_BYTES`].
fn shortened(message: &str) -> Cow<'_, str> {
    if message.len() <= SHOWN_BYTES {
        return Cow::Borrowed(message);
    }
    let head = &message[..message.floor_char_boundary(SHOWN_BYTES / 2)];
    let tail = &message[message.ceil_char_boundary(message.len() - SHOWN_BYTES / 2)..];
    let left_out = message.len() - head.len() - tail.len();
    Cow::Owned(format!("{head} … ({left_out} bytes left out) … {tail}"))
}

/// Returns true if output on stderr may be coloured.
fn stderr_is_coloured() -> bool {
    stderr_is_terminal() && allows_styles()
}

/// Writes a line to stderr with a single call, so that lines of concurrent threads and processes do not mix.
fn write_line(line: &str) {
    let _ = io::stderr()
        .lock()
        .write_all(format!("{line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_json_parses_to_the_same_value() {
        let value = "a\u{1b}\u{9b}\u{202e}\u{7f}\n\"漢";
        let text = serde_json::to_string(value).unwrap();
        let shown = escaped_json(&text);
        assert!(shown.chars().all(emberlm_system::text::is_harmless));
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), value);
    }

    #[test]
    fn a_message_cannot_imitate_another() {
        let line = labelled_line("error", AnsiColor::Red, "no a\nhint: rm -rf", false);
        assert_eq!(line, r"error: no a\nhint: rm -rf");
    }
}
