//! Ends a text where one of a few strings comes, however tokens cut it.
//!
//! The text ends before the string whose last byte comes first; of several that end with the same byte, before the
//! longest. The choice depends only on the text, not on the positions of cuts, and is known as soon as that byte is
//! there. What may be the beginning of a stop string is held back until it is known not to be one.

use std::sync::Arc;

/// A stop string that cannot be used: its value and the rule that it breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stop = {value}: {rule}")]
pub struct StopStringError {
    /// The string, or its length where it is too long.
    pub value: String,
    /// The rule.
    pub rule: String,
}

/// Finds stop strings in a text that arrives in arbitrary byte chunks. The default has no stop strings.
#[derive(Clone, Debug, Default)]
pub struct StopStrings {
    patterns: Vec<Pattern>,
    /// The end of what has come: as many bytes as may begin a stop string.
    held: Vec<u8>,
    /// Which one has come.
    found: Option<usize>,
}

/// The part of a text that may be shown after a piece of it has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// The bytes that may be shown now, those that were held back before among them.
    pub bytes: Vec<u8>,
    /// The number of the stop string that ended the text, from 0: nothing is shown after these bytes.
    pub stopped: Option<usize>,
}

impl StopStrings {
    /// The maximum length of a stop string, in bytes.
    pub const MAX_LEN: usize = 4096;

    /// Looks for these strings; with none, all bytes pass at once.
    ///
    /// # Errors
    /// A string that is empty, or longer than 4096 bytes.
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

    /// The bytes of all stop strings together.
    pub fn pattern_bytes(&self) -> usize {
        let lengths = self.patterns.iter().map(|pattern| pattern.bytes.len());
        lengths.sum()
    }

    /// Takes the next bytes. After a stop string has come nothing passes any more.
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

    /// Ends the text: what was held back may be shown now.
    pub fn finish(self) -> Vec<u8> {
        self.held
    }

    /// Moves every pattern on; the longest of those that end here.
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

/// One string's automaton (Knuth, Morris and Pratt 1977).
#[derive(Clone, Debug)]
struct Pattern {
    bytes: Arc<[u8]>,
    /// For each length of a beginning of the string, the longest shorter one that it ends with.
    fallback: Arc<[usize]>,
    /// The length of the string's beginning that the text ends with.
    matched: usize,
}

impl Pattern {
    fn new(bytes: &[u8]) -> Self {
        let (mut fallback, mut matched) = (vec![0; bytes.len() + 1], 0);
        // The string is looked for in itself from its second byte on.
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

    /// Takes a byte, and returns whether the string ends with it.
    fn step(&mut self, byte: u8) -> bool {
        self.matched = advance(&self.bytes, &self.fallback, self.matched, byte);
        self.matched == self.bytes.len()
    }
}
/// The length of the part of a string that a text ends with after `byte`, if it ended with `matched` bytes of it before.
fn advance(bytes: &[u8], fallback: &[usize], mut matched: usize, byte: u8) -> usize {
    while matched > 0 && bytes.get(matched) != Some(&byte) {
        matched = fallback[matched];
    }
    matched + usize::from(bytes[matched] == byte)
}
