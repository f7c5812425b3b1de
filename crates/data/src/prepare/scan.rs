//! The first pass over the inputs: validates UTF-8, measures and hashes texts, and collects the alphabet.
//!
//! Texts are always read twice, so that an invalid byte is reported before hours of work. Records are only read twice
//! if the split or the alphabet depends on all of them.

use rayon::prelude::*;

use super::corpus::Corpus;
use super::documents::{Hash, SeenDocuments};
use super::waves::{LocatedChunk, Reading, for_each_wave, wave_bytes};
use super::{Phase, PrepareOptions, Progress, SplitRule};
use crate::{DataError, Split};

/// The result of the first pass.
pub(super) struct Scan {
    /// The result for each input, if it was read.
    pub(super) inputs: Vec<Option<InputScan>>,
    /// The number of characters in all documents that are not dropped.
    pub(super) characters: u64,
    /// The distinct characters in order, if the tokenizer needs them.
    pub(super) alphabet: Vec<char>,
}

/// The result of the first pass over an input. The second pass must find the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InputScan {
    /// The total length of its documents.
    pub(super) length: Length,
    /// The hash of a text.
    pub(super) hash: Option<Hash>,
}

/// The length of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Length {
    /// The number of bytes.
    pub(super) bytes: u64,
    /// The number of characters.
    pub(super) characters: u64,
}

impl Length {
    /// The length of `text`.
    pub(super) fn of(text: &str) -> Self {
        Self {
            bytes: text.len() as u64,
            characters: text.chars().count() as u64,
        }
    }

    /// Adds the length of another text.
    pub(super) fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.characters += other.characters;
    }
}

/// Reads the inputs that must be known before tokenizing. If `alphabet` is set, collects their characters.
pub(super) fn scan(
    corpus: &Corpus,
    options: &PrepareOptions,
    alphabet: bool,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Scan, DataError> {
    let all = alphabet || corpus.rule == SplitRule::Position;
    let inputs = corpus.inputs.iter().enumerate();
    let reading = Reading {
        inputs: inputs
            .filter(|(_, input)| all || !input.format.has_records())
            .collect(),
        options: &options.input,
        tokenizer: None,
        wave_bytes: wave_bytes(u64::MAX, 1),
    };
    let mut scanner = Scanner {
        corpus,
        // Dropped documents only matter here if the border is counted in characters.
        documents: (options.dedup && corpus.rule == SplitRule::Position)
            .then(|| SeenDocuments::new(true)),
        wants_alphabet: alphabet,
        alphabet: Alphabet::default(),
        text: None,
        scan: Scan {
            inputs: vec![None; corpus.inputs.len()],
            characters: 0,
            alphabet: Vec::new(),
        },
    };
    if reading.inputs.is_empty() {
        return Ok(scanner.scan);
    }
    for &(number, _) in &reading.inputs {
        scanner.scan.inputs[number] = Some(InputScan::default());
    }
    let bytes = reading.inputs.iter().map(|(_, input)| input.bytes).sum();
    let phase = Phase::Scan;
    progress(Progress::Start { phase, bytes });
    for_each_wave(&reading, |wave| {
        scanner.add(&wave.chunks);
        progress(Progress::Advance { bytes: wave.read });
        Ok(())
    })?;
    scanner.end_text();
    let scan = Scan {
        alphabet: scanner.alphabet.chars(),
        ..scanner.scan
    };
    // Empty files were rejected earlier, but a compressed file can contain an empty text.
    for (input, scanned) in corpus.inputs.iter().zip(&scan.inputs) {
        let nothing = scanned.is_some_and(|scanned| scanned.length.bytes == 0);
        if nothing && !input.format.has_records() {
            let path = input.name.clone();
            return Err(DataError::EmptyFile { path });
        }
    }
    Ok(scan)
}

struct Scanner<'a> {
    corpus: &'a Corpus,
    documents: Option<SeenDocuments>,
    wants_alphabet: bool,
    alphabet: Alphabet,
    /// The text being read.
    text: Option<OpenText>,
    scan: Scan,
}

struct OpenText {
    input: usize,
    hasher: blake3::Hasher,
    characters: u64,
}

impl Scanner<'_> {
    fn add(&mut self, chunks: &[LocatedChunk]) {
        let hashes = self.documents.is_some();
        let measure = |located: &LocatedChunk| {
            let text = &located.chunk.text;
            let is_record = self.corpus.inputs[located.input].format.has_records();
            let hash = (is_record && hashes).then(|| blake3::hash(text.as_bytes()));
            (Length::of(text), hash)
        };
        let found: Vec<_> = chunks.par_iter().map(measure).collect();
        if self.wants_alphabet {
            let texts = chunks.par_iter().map(|located| located.chunk.text.as_str());
            let new = texts.fold(Alphabet::default, Alphabet::with);
            self.alphabet = new
                .reduce(Alphabet::default, Alphabet::and)
                .and(std::mem::take(&mut self.alphabet));
        }
        for (located, (length, hash)) in chunks.iter().zip(found) {
            if let Some(scanned) = &mut self.scan.inputs[located.input] {
                scanned.length.add(length);
            }
            if self.corpus.inputs[located.input].format.has_records() {
                self.end_text();
                self.end_document(hash.as_ref(), length.characters);
            } else {
                if located.chunk.begins {
                    self.end_text();
                }
                let text = self.text.get_or_insert_with(|| OpenText {
                    input: located.input,
                    hasher: blake3::Hasher::new(),
                    characters: 0,
                });
                text.hasher.update(located.chunk.text.as_bytes());
                text.characters += length.characters;
            }
        }
    }

    fn end_text(&mut self) {
        if let Some(text) = self.text.take() {
            let hash = text.hasher.finalize();
            if let Some(scanned) = &mut self.scan.inputs[text.input] {
                scanned.hash = Some(hash);
            }
            self.end_document(Some(&hash), text.characters);
        }
    }

    fn end_document(&mut self, hash: Option<&Hash>, characters: u64) {
        // The split is still unknown, and makes no difference here.
        let left_out = match &mut self.documents {
            Some(documents) => documents.insert(hash, Split::Train),
            None => false,
        };
        if !left_out {
            self.scan.characters += characters;
        }
    }
}

/// The set of characters in a text, with a flag per code point that grows as needed.
#[derive(Default)]
struct Alphabet {
    seen: Vec<bool>,
}

impl Alphabet {
    fn with(mut self, text: &str) -> Self {
        for character in text.chars() {
            let at = character as usize;
            if at >= self.seen.len() {
                self.seen.resize(at + 1, false);
            }
            self.seen[at] = true;
        }
        self
    }

    fn and(mut self, other: Self) -> Self {
        if self.seen.len() < other.seen.len() {
            return other.and(self);
        }
        for (seen, other) in self.seen.iter_mut().zip(other.seen) {
            *seen |= other;
        }
        self
    }

    fn chars(&self) -> Vec<char> {
        let code_points = (0..).zip(&self.seen).filter(|(_, seen)| **seen);
        code_points
            .filter_map(|(at, _)| char::from_u32(at))
            .collect()
    }
}
