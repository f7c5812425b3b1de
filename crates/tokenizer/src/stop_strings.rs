//! Ends a text at the first of several stop strings, regardless of token boundaries.
//!
//! The text ends before the stop string whose last byte comes first. Of several that end at the same byte, the
//! longest is chosen. The choice depends only on the text, not on its division into tokens, and is made as soon
//! as that byte arrives. Bytes that may begin a stop string are held back until it is known that they do not.

use std::sync::Arc;

/// An invalid stop string: its value and the violated rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stop = {value}: {rule}")]
pub struct StopStringError {
    /// The string, or its length if it is too long.
    pub value: String,
    /// The rule.
    pub rule: String,
}

/// Finds stop strings in a text that arrives in arbitrary byte chunks. The default has no stop strings.
#[derive(Clone, Debug, Default)]
pub struct StopStrings {
    patterns: Vec<Pattern>,
    /// The held-back bytes: those that may begin a stop string.
    held: Vec<u8>,
    /// The index of the stop string that ended the text.
    found: Option<usize>,
}

/// The bytes released by one [`StopStrings::push`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// The bytes that can be displayed now, including those held back before.
    pub bytes: Vec<u8>,
    /// The 0-based index of the stop string that ended the text. No further bytes are released.
    pub stopped: Option<usize>,
}

impl StopStrings {
    /// The maximum length of a stop string, in bytes.
    pub const MAX_LEN: usize = 4096;

    /// Creates a finder for `strings`. Without any, all bytes are released immediately.
    ///
    /// # Errors
    /// A string is empty or longer than 4096 bytes.
    pub fn new<S: AsRef<str>>(strings: &[S]) -> Result<Self, StopStringError> {
        let pattern = |string: &S| {
            let bytes = string.as_ref().as_bytes();
            match bytes.len() {
                1..=Self::MAX_LEN => Ok(Pattern::new(bytes)),
                0 => Err(StopStringError {
                    value: "\"\"".to_owned(),
                    rule: "must not be empty".to_owned(),
                }),
                len => Err(StopStringError {
                    value: format!("{len} bytes"),
                    rule: format!("must have at most {} bytes", Self::MAX_LEN),
                }),
            }
        };
        Ok(Self {
            patterns: strings.iter().map(pattern).collect::<Result<_, _>>()?,
            held: Vec::new(),
            found: None,
        })
    }

    /// The total length of all stop strings in bytes.
    pub fn pattern_bytes(&self) -> usize {
        let lengths = self.patterns.iter().map(|pattern| pattern.bytes.len());
        lengths.sum()
    }

    /// Processes the next bytes. Releases nothing after a stop string has occurred.
    pub fn push(&mut self, bytes: &[u8]) -> Passed {
        for &byte in bytes {
            if self.found.is_some() {
                break;
            }
            self.held.push(byte);
            self.found = self.step(byte);
            if let Some(found) = self.found {
                let kept = self.held.len() - self.patterns[found].bytes.len();
                self.held.truncate(kept);
            }
        }
        let begun = match self.found {
            Some(_) => 0,
            None => self.patterns.iter().map(|p| p.matched).max().unwrap_or(0),
        };
        let passed = self.held.len() - begun;
        Passed {
            bytes: self.held.drain(..passed).collect(),
            stopped: self.found,
        }
    }

    /// Ends the text and returns the bytes that were held back.
    pub fn finish(self) -> Vec<u8> {
        self.held
    }

    /// Advances every pattern by a byte. Returns the longest one that ends here.
    fn step(&mut self, byte: u8) -> Option<usize> {
        let mut longest: Option<(usize, usize)> = None;
        for (number, pattern) in self.patterns.iter_mut().enumerate() {
            let len = pattern.bytes.len();
            if pattern.step(byte) && longest.is_none_or(|(_, most)| len > most) {
                longest = Some((number, len));
            }
        }
        longest.map(|(number, _)| number)
    }
}

/// The automaton of one stop string (Knuth, Morris and Pratt 1977).
#[derive(Clone, Debug)]
struct Pattern {
    bytes: Arc<[u8]>,
    /// For each prefix length, the length of the longest proper prefix that is also a suffix of it.
    fallback: Arc<[usize]>,
    /// The length of the longest prefix of the string that is a suffix of the text.
    matched: usize,
}

impl Pattern {
    fn new(bytes: &[u8]) -> Self {
        let (mut fallback, mut matched) = (vec![0; bytes.len() + 1], 0);
        // Matches the string against itself from its second byte.
        for (at, &byte) in bytes.iter().enumerate().skip(1) {
            matched = advance(bytes, &fallback, matched, byte);
            fallback[at + 1] = matched;
        }
        Self {
            bytes: bytes.into(),
            fallback: fallback.into(),
            matched: 0,
        }
    }

    /// Advances by a byte. Returns true if the string ends with it.
    fn step(&mut self, byte: u8) -> bool {
        self.matched = advance(&self.bytes, &self.fallback, self.matched, byte);
        self.matched == self.bytes.len()
    }
}

/// Returns the matched prefix length after `byte`, given the length `matched` before it.
fn advance(bytes: &[u8], fallback: &[usize], mut matched: usize, byte: u8) -> usize {
    while matched > 0 && bytes.get(matched) != Some(&byte) {
        matched = fallback[matched];
    }
    matched + usize::from(bytes[matched] == byte)
}
