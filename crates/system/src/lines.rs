//! Reads the lines of a file, with a maximum length.

use std::io::{self, BufRead};

/// A line of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A complete line, without its line break.
    Whole(&'a [u8]),
    /// A line longer than the limit, which was skipped.
    TooLong,
    /// The bytes after the last line break.
    Unfinished(&'a [u8]),
}

/// Reads lines. The limit bounds memory use for any input.
#[derive(Debug)]
pub struct Lines<R> {
    input: R,
    limit: usize,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    /// Creates a reader of lines of at most `limit` bytes each.
    pub fn new(input: R, limit: usize) -> Self {
        Self {
            input,
            limit,
            line: Vec::new(),
        }
    }

    /// Returns the next line, or `None` at the end.
    ///
    /// # Errors
    /// The file cannot be read.
    #[allow(clippy::should_implement_trait)] // A line borrows the buffer.
    pub fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.line.clear();
        let (mut too_long, mut empty) = (false, true);
        loop {
            let found = self.input.fill_buf()?;
            if found.is_empty() {
                return Ok(match (empty, too_long) {
                    (true, _) => None,
                    (false, true) => Some(Line::TooLong),
                    (false, false) => Some(Line::Unfinished(&self.line)),
                });
            }
            empty = false;
            let end = found.iter().position(|&byte| byte == b'\n');
            let part = &found[..end.unwrap_or(found.len())];
            match self.line.len() + part.len() > self.limit {
                true => too_long = true,
                false if too_long => {}
                false => self.line.extend_from_slice(part),
            }
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            if end.is_some() {
                return Ok(Some(match too_long {
                    true => Line::TooLong,
                    false => Line::Whole(&self.line),
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn lines_are_complete_too_long_or_unfinished() {
        for capacity in [1, 2, 3, 100] {
            let text = &b"one\n\nfour4\nsix\n\xff"[..];
            let mut lines = Lines::new(BufReader::with_capacity(capacity, text), 3);
            assert_eq!(lines.next().unwrap(), Some(Line::Whole(b"one")));
            assert_eq!(lines.next().unwrap(), Some(Line::Whole(b"")));
            assert_eq!(lines.next().unwrap(), Some(Line::TooLong));
            assert_eq!(lines.next().unwrap(), Some(Line::Whole(b"six")));
            assert_eq!(lines.next().unwrap(), Some(Line::Unfinished(b"\xff")));
            assert_eq!(lines.next().unwrap(), None);
        }
    }
}
