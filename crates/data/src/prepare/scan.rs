//! The first pass: is it UTF-8, how long is it, which characters has it, is it a text that came before.
//!
//! Texts are always read twice, so that a wrong byte is reported before hours of work and not after. Records are read twice if the
//! split or the alphabet depends on all of them.

use rayon::prelude::*;

use super::corpus::Corpus;
use super::documents::{Documents, Hash};
use super::waves::{Located, Reading, for_each_wave, wave_bytes};
use super::{Phase, PrepareOptions, Progress, SplitRule};
use crate::{DataError, Split};

/// The outcome of the first pass.
pub(super) struct Scan {
    /// Of each input, if it was read.
    pub(super) inputs: Vec<Option<Scanned>>,
    /// The characters of all documents that are not left out.
    pub(super) characters: u64,
    /// The distinct characters in their order, where the tokenizer is to be made of them.
    pub(super) alphabet: Vec<char>,
}

/// The outcome of the first pass over an input; the second pass must have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Scanned {
    /// Its documents' length.
    pub(super) length: Length,
    /// A text's hash.
    pub(super) hash: Option<Hash>,
}

/// The length of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Length {
    /// In bytes.
    pub(super) bytes: u64,
    /// In characters.
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

    /// Adds another text's.
    pub(super) fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.characters += other.characters;
    }
}

/// Reads what has to be read before the tokenizing; `alphabet` is whether the characters are wanted.
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
        wave_bytes: wave_bytes(u64::MAX),
    };
    let mut scanning = Scanning {
        corpus,
        // Only where the border is counted in characters does it matter here what is left out.
        documents: (options.dedup && corpus.rule == SplitRule::Position)
            .then(|| Documents::new(true)),
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
        return Ok(scanning.scan);
    }
    for &(number, _) in &reading.inputs {
        scanning.scan.inputs[number] = Some(Scanned::default());
    }
    let bytes = reading.inputs.iter().map(|(_, input)| input.bytes).sum();
    let phase = Phase::Scan;
    progress(Progress::Start { phase, bytes });
    for_each_wave(&reading, |wave| {
        scanning.add(&wave.pieces);
        progress(Progress::Advance { bytes: wave.read });
        Ok(())
    })?;
    scanning.end_text();
    let scan = Scan {
        alphabet: scanning.alphabet.chars(),
        ..scanning.scan
    };
    // A file of no bytes is refused before; one may also hold a container of none.
    for (input, scanned) in corpus.inputs.iter().zip(&scan.inputs) {
        let nothing = scanned.is_some_and(|scanned| scanned.length.bytes == 0);
        if nothing && !input.format.has_records() {
            let path = input.name.clone();
            return Err(DataError::EmptyFile { path });
        }
    }
    Ok(scan)
}

struct Scanning<'a> {
    corpus: &'a Corpus,
    documents: Option<Documents>,
    wants_alphabet: bool,
    alphabet: Alphabet,
    /// The text that is being read.
    text: Option<Text>,
    scan: Scan,
}

struct Text {
    input: usize,
    hasher: blake3::Hasher,
    characters: u64,
}

impl Scanning<'_> {
    fn add(&mut self, pieces: &[Located]) {
        let hashes = self.documents.is_some();
        let look = |located: &Located| {
            let text = &located.piece.text;
            let is_record = self.corpus.inputs[located.input].format.has_records();
            let hash = (is_record && hashes).then(|| blake3::hash(text.as_bytes()));
            (Length::of(text), hash)
        };
        let found: Vec<_> = pieces.par_iter().map(look).collect();
        if self.wants_alphabet {
            let texts = pieces.par_iter().map(|located| located.piece.text.as_str());
            let new = texts.fold(Alphabet::default, Alphabet::with);
            self.alphabet = new
                .reduce(Alphabet::default, Alphabet::and)
                .and(std::mem::take(&mut self.alphabet));
        }
        for (located, (length, hash)) in pieces.iter().zip(found) {
            if let Some(scanned) = &mut self.scan.inputs[located.input] {
                scanned.length.add(length);
            }
            if self.corpus.inputs[located.input].format.has_records() {
                self.end_text();
                self.end_document(hash.as_ref(), length.characters);
            } else {
                if located.piece.begins {
                    self.end_text();
                }
                let text = self.text.get_or_insert_with(|| Text {
                    input: located.input,
                    hasher: blake3::Hasher::new(),
                    characters: 0,
                });
                text.hasher.update(located.piece.text.as_bytes());
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
        // The split is unknown yet, and does not matter here.
        let left_out = match &mut self.documents {
            Some(documents) => documents.meet(hash, Split::Train),
            None => false,
        };
        if !left_out {
            self.scan.characters += characters;
        }
    }
}

/// The characters of a text: a flag per code point, grown as needed.
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
