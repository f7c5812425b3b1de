//! The first pass over a corpus: is it UTF-8, how long is it, which characters has it.

use rayon::prelude::*;

use crate::{DataError, Input, InputOptions, Progress};

/// What the first pass finds.
pub(crate) struct Scan {
    /// Each document's lengths.
    pub(crate) documents: Vec<Scanned>,
    /// The distinct characters in their order, where the tokenizer is to be made of them.
    pub(crate) alphabet: Vec<char>,
}

/// What the first pass finds in a document; the second must find the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// Its length in bytes.
    pub(crate) bytes: u64,
    /// Its length in characters.
    pub(crate) characters: u64,
}

impl Scanned {
    /// Counts `text`.
    pub(crate) fn add(&mut self, text: &str) {
        self.bytes += text.len() as u64;
        self.characters += text.chars().count() as u64;
    }
}

/// Reads every document once, in parallel; `alphabet` is whether its characters are wanted.
pub(crate) fn scan(
    documents: &[Input],
    options: &InputOptions,
    alphabet: bool,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Scan, DataError> {
    let scan_one = |document: &Input| {
        let mut scanned = Scanned::default();
        let mut seen = Alphabet::new(alphabet);
        let mut pieces = document.open(options, None)?;
        while let Some(piece) = pieces.next_piece()? {
            scanned.add(&piece.text);
            seen.add(&piece.text);
            progress(Progress::Advance {
                bytes: piece.text.len() as u64,
            });
        }
        match scanned.bytes {
            0 => Err(DataError::EmptyFile {
                path: document.path.clone(),
            }),
            _ => Ok((scanned, seen.chars())),
        }
    };
    // Collected before an error is looked for, so that the first bad file is told, not the first one found.
    let results: Vec<_> = documents.par_iter().map(scan_one).collect();
    let mut scan = Scan {
        documents: Vec::with_capacity(results.len()),
        alphabet: Vec::new(),
    };
    for result in results {
        let (scanned, chars) = result?;
        scan.documents.push(scanned);
        scan.alphabet.extend(chars);
        scan.alphabet.sort_unstable();
        scan.alphabet.dedup();
    }
    Ok(scan)
}

/// The characters of a text, if somebody wants to know them: a flag per code point, grown as needed.
struct Alphabet {
    wanted: bool,
    seen: Vec<bool>,
}

impl Alphabet {
    fn new(wanted: bool) -> Self {
        let seen = Vec::new();
        Self { wanted, seen }
    }

    fn add(&mut self, text: &str) {
        for character in text.chars().filter(|_| self.wanted) {
            let at = character as usize;
            if at >= self.seen.len() {
                self.seen.resize(at + 1, false);
            }
            self.seen[at] = true;
        }
    }

    fn chars(&self) -> Vec<char> {
        let code_points = (0..).zip(&self.seen).filter(|(_, seen)| **seen);
        code_points
            .filter_map(|(at, _)| char::from_u32(at))
            .collect()
    }
}
