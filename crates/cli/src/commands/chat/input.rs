//! Reads the user's messages: from a terminal with line editing and history, or as lines from stdin.

use std::cell::Cell;
use std::fs;
use std::io::{self, BufRead, IsTerminal, Read};
use std::path::PathBuf;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Context, Editor, Helper};

use super::command;
use crate::console;
use crate::error::{CliError, warn};

/// The prompt shown before input.
const PROMPT: &str = "> ";
/// Maximum size of a message in bytes. A context of 8192 tokens is about 40,000 bytes.
pub const MOST_MESSAGE: usize = 1 << 20;
/// Maximum number of history entries.
const MOST_ENTRIES: usize = 1000;

/// The source of messages.
pub enum Input {
    Terminal(Box<LineEditor>),
    Lines {
        /// The number of lines read so far.
        count: usize,
    },
}

/// One item of input.
#[derive(Debug, PartialEq, Eq)]
pub enum TerminalInput {
    Text(String),
    /// A message of more than [`MOST_MESSAGE`] bytes, which was discarded.
    TooLong,
    /// A line that the user cancelled with Ctrl-C.
    Cancelled,
    End,
}

/// The terminal line editor.
pub struct LineEditor {
    editor: Editor<LineHelper, FileHistory>,
    /// The history file. `None` if history is disabled or has no location.
    history: Option<PathBuf>,
}

impl Input {
    /// Opens stdin. Uses line editing if both stdin and stdout are terminals.
    pub fn new(history: bool) -> Result<Self, CliError> {
        if !(io::stdin().is_terminal() && console::stdout_is_terminal()) {
            return Ok(Self::Lines { count: 0 });
        }
        let config = Config::builder().max_history_size(MOST_ENTRIES);
        let config = config.map_err(unreadable)?.build();
        let mut editor = Editor::with_config(config).map_err(unreadable)?;
        editor.set_helper(Some(LineHelper::default()));
        let history = if history { history_file() } else { None };
        if let Some(file) = &history
            && file.exists()
            && let Err(error) = editor.load_history(file)
        {
            warn(&format!("cannot read {}: {error}", file.display()));
        }
        Ok(Self::Terminal(Box::new(LineEditor { editor, history })))
    }

    /// Returns true if the input is interactive.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// Waits for the next message or command, which may span several lines.
    pub fn read_message(&mut self) -> Result<TerminalInput, CliError> {
        match self {
            Self::Terminal(editor) => editor.read_message(),
            Self::Lines { count } => read_message(&mut io::stdin().lock(), count),
        }
    }
}

/// Reads one message: lines that end with a backslash continue on the next one.
fn read_message(input: &mut impl BufRead, count: &mut usize) -> Result<TerminalInput, CliError> {
    let mut text = String::new();
    let mut too_long = false;
    let message = |text: String, too_long: bool| match too_long {
        true => TerminalInput::TooLong,
        false => TerminalInput::Text(text),
    };
    loop {
        let Some((line, ended)) = next_line(input, count)? else {
            return Ok(match text.is_empty() && !too_long {
                true => TerminalInput::End,
                false => message(text, too_long),
            });
        };
        too_long |= !ended || text.len() + line.len() > MOST_MESSAGE;
        let (line, more) = match line.strip_suffix('\\') {
            Some(line) => (line, true),
            None => (&*line, false),
        };
        if too_long {
            text.clear();
        } else {
            text.push_str(line);
        }
        if !more {
            return Ok(message(text, too_long));
        }
        if !too_long {
            text.push('\n');
        }
    }
}

impl LineEditor {
    fn read_message(&mut self) -> Result<TerminalInput, CliError> {
        if let Some(helper) = self.editor.helper() {
            helper.continued.set(false);
        }
        let text = match self.editor.readline(PROMPT) {
            Ok(text) => text,
            Err(ReadlineError::Interrupted) => return Ok(TerminalInput::Cancelled),
            Err(ReadlineError::Eof) => return Ok(TerminalInput::End),
            Err(error) => return Err(unreadable(error)),
        };
        let continued = self
            .editor
            .helper()
            .is_some_and(|helper| helper.continued.get());
        if text.len() > MOST_MESSAGE {
            return Ok(TerminalInput::TooLong);
        }
        self.add_to_history(&text);
        // Backslashes in pasted text are part of the text.
        Ok(TerminalInput::Text(match continued {
            true => text.replace("\\\n", "\n"),
            false => text,
        }))
    }

    fn add_to_history(&mut self, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        let added = self.editor.add_history_entry(text);
        let Some(file) = &self.history else {
            return;
        };
        let write = || {
            if let Some(folder) = file.parent() {
                fs::create_dir_all(folder)?;
            }
            Ok::<_, ReadlineError>(())
        };
        let written = match added {
            Ok(true) => write().and_then(|()| self.editor.append_history(file)),
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            warn(&format!("cannot write {}: {error}", file.display()));
            // Report the failure only once.
            self.history = None;
        }
    }
}

/// The history file: `emberlm/chat-history` in the user's data folder.
fn history_file() -> Option<PathBuf> {
    Some(dirs::data_dir()?.join("emberlm").join("chat-history"))
}

fn unreadable(error: impl std::fmt::Display) -> CliError {
    CliError::new(format!("cannot read from the terminal: {error}"))
}

/// Reads the next line without its terminator, and returns whether it is complete. Increments `count`. Keeps
/// only the last byte of a line of more than [`MOST_MESSAGE`] bytes.
fn next_line(
    input: &mut impl BufRead,
    count: &mut usize,
) -> Result<Option<(String, bool)>, CliError> {
    let unreadable = |error| CliError::new(format!("cannot read stdin: {error}"));
    let mut bytes = Vec::new();
    let mut limited = input.by_ref().take(MOST_MESSAGE as u64 + 2);
    limited.read_until(b'\n', &mut bytes).map_err(unreadable)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    *count += 1;
    let whole = bytes.len() < MOST_MESSAGE + 2 || bytes.ends_with(b"\n");
    if !whole {
        bytes = skip_line(input, bytes.last().copied()).map_err(unreadable)?;
    }
    let line = String::from_utf8(bytes)
        .map_err(|_| CliError::new(format!("line {count} of stdin is not UTF-8")))?;
    let line = line.strip_suffix('\n').unwrap_or(&line);
    let line = line.strip_suffix('\r').unwrap_or(line);
    Ok(Some((line.to_owned(), whole)))
}

/// Skips to the end of a line. Returns a backslash if the line ends with one. `last` is the byte read last.
fn skip_line(input: &mut impl BufRead, mut last: Option<u8>) -> io::Result<Vec<u8>> {
    loop {
        let bytes = input.fill_buf()?;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let line = &bytes[..end.unwrap_or(bytes.len())];
        last = line.last().copied().or(last);
        let (done, read) = (
            end.is_some() || bytes.is_empty(),
            end.map_or(bytes.len(), |at| at + 1),
        );
        input.consume(read);
        if done {
            return Ok(last.filter(|byte| *byte == b'\\').into_iter().collect());
        }
    }
}

/// Line editing behaviour: continuation lines and command completion.
#[derive(Default)]
struct LineHelper {
    /// True if Enter was pressed on a line that ends with `\`.
    continued: Cell<bool>,
}

impl Validator for LineHelper {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        Ok(match context.input().ends_with('\\') {
            true => {
                self.continued.set(true);
                ValidationResult::Incomplete
            }
            false => ValidationResult::Valid(None),
        })
    }
}

impl Completer for LineHelper {
    type Candidate = String;

    /// Completes the names of commands.
    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let begun = line.get(..at).unwrap_or_default();
        let fits = |name: &&str| begun.starts_with('/') && name.starts_with(begun);
        Ok((
            0,
            command::names().filter(fits).map(str::to_owned).collect(),
        ))
    }
}

impl Hinter for LineHelper {
    type Hint = String;
}

impl Highlighter for LineHelper {}

impl Helper for LineHelper {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_without_terminators_and_bad_ones_are_reported() {
        let mut input = &b"a\r\nb\n\n\xFF\n"[..];
        let mut count = 0;
        let mut next =
            || Ok::<_, CliError>(next_line(&mut input, &mut count)?.map(|(line, _)| line));
        assert_eq!(next().unwrap().as_deref(), Some("a"));
        assert_eq!(next().unwrap().as_deref(), Some("b"));
        assert_eq!(next().unwrap().as_deref(), Some(""));
        let error = next().unwrap_err();
        assert!(format!("{error:?}").contains("line 4 of stdin is not UTF-8"));
        assert_eq!(next().unwrap(), None);
    }

    #[test]
    fn messages_over_the_limit_are_discarded() {
        let long = "x".repeat(MOST_MESSAGE);
        let text = format!("{long}\n{long}y\na\n{long}yyy\\\nb\n{long}\\\nb\nc\\\nd\n{long}yyy");
        let mut input = text.as_bytes();
        let mut count = 0;
        let mut next = || read_message(&mut input, &mut count).unwrap();
        assert_eq!(next(), TerminalInput::Text(long.clone()));
        assert_eq!(next(), TerminalInput::TooLong);
        assert_eq!(next(), TerminalInput::Text("a".to_owned()));
        // The message has a continuation line.
        assert_eq!(next(), TerminalInput::TooLong);
        assert_eq!(next(), TerminalInput::TooLong);
        assert_eq!(next(), TerminalInput::Text("c\nd".to_owned()));
        assert_eq!(next(), TerminalInput::TooLong);
        assert_eq!(next(), TerminalInput::End);
    }
}
