//! Assignment of documents to splits, and removal of duplicates.

use rayon::prelude::*;

use super::corpus::Corpus;
use super::documents::{Counts, Hash, SeenDocuments};
use super::scan::{Length, Scan};
use super::waves::LocatedChunk;
use super::{PrepareOptions, SplitRule};
use crate::{DataError, Split};

/// A span of text that was assigned to one split.
#[derive(Clone, Copy)]
pub(super) struct AssignedSpan<'w> {
    /// The split.
    pub(super) split: Split,
    /// True if a document begins with this span in this split.
    pub(super) begins: bool,
    /// The text.
    pub(super) text: &'w str,
    /// The index of the span's chunk in the wave.
    pub(super) chunk: usize,
    /// True if the cut after this span may change tokens.
    pub(super) cut_inexactly: bool,
}

/// Assigns documents to splits, in order. The result for a document depends only on earlier documents and the first
/// pass.
pub(super) struct Assigner<'a> {
    corpus: &'a Corpus,
    scan: &'a Scan,
    rule: Rule,
    documents: SeenDocuments,
    /// True if a document may be cut at the border between the splits.
    can_be_cut: bool,
    /// The input being read, and the length read so far.
    input: Option<(usize, Length)>,
    /// True if the current document is dropped as a duplicate.
    left_out: bool,
    /// The split of the document's previous span. A document begins in each split that it reaches.
    last: Option<Split>,
}

#[derive(Clone, Copy)]
enum Rule {
    /// The number of characters left for training.
    Position {
        train_left: u64,
    },
    /// Documents are for validation if the first 64 bits of their hash are below this.
    Hash {
        below: u64,
    },
    File,
}

impl<'a> Assigner<'a> {
    /// An assigner at the first document.
    ///
    /// # Errors
    /// [`DataError::EmptySplit`] if a split by position leaves a requested split empty.
    pub(super) fn new(
        corpus: &'a Corpus,
        scan: &'a Scan,
        options: &PrepareOptions,
    ) -> Result<Self, DataError> {
        let rule = match corpus.rule {
            SplitRule::Position => Rule::Position {
                train_left: border(scan.characters, options.val_fraction)?,
            },
            SplitRule::Hash => Rule::Hash {
                below: (options.val_fraction * 2f64.powi(64)) as u64,
            },
            SplitRule::File => Rule::File,
        };
        Ok(Self {
            corpus,
            scan,
            rule,
            documents: SeenDocuments::new(options.dedup),
            can_be_cut: options.encoding.can_be_cut(),
            input: None,
            left_out: false,
            last: None,
        })
    }

    /// The counts so far.
    pub(super) fn counts(&self) -> Counts {
        self.documents.counts()
    }

    /// Assigns the next chunks. Returns their spans in order.
    ///
    /// # Errors
    /// [`DataError::FileChanged`] if an input differs from the first pass.
    pub(super) fn assign<'w>(
        &mut self,
        chunks: &'w [LocatedChunk],
    ) -> Result<Vec<AssignedSpan<'w>>, DataError> {
        let hashes = self.hashes(chunks);
        let mut spans = Vec::with_capacity(chunks.len());
        for (at, (located, hash)) in chunks.iter().zip(&hashes).enumerate() {
            let text = located.chunk.text.as_str();
            let length = Length::of(text);
            self.add_length(located.input, length)?;
            if located.chunk.begins {
                let split = self.split_at_begin(located.input, hash.as_ref());
                self.left_out = self.documents.insert(hash.as_ref(), split);
                self.last = None;
            }
            if self.left_out {
                continue;
            }
            let divided = self.divide(located.input, text, length, hash.as_ref());
            let last = divided.iter().rposition(|(_, text)| !text.is_empty());
            for (number, (split, text)) in divided.into_iter().enumerate() {
                if text.is_empty() {
                    continue;
                }
                spans.push(AssignedSpan {
                    split,
                    begins: self.last.replace(split) != Some(split),
                    text,
                    chunk: at,
                    cut_inexactly: located.chunk.cut_inexactly && Some(number) == last,
                });
            }
        }
        Ok(spans)
    }

    /// Checks the last input, after the last chunk.
    ///
    /// # Errors
    /// As [`Assigner::assign`].
    pub(super) fn finish(&mut self) -> Result<(), DataError> {
        match self.input.take() {
            Some((input, length)) => self.check_length(input, length),
            None => Ok(()),
        }
    }

    /// The hash of each chunk's document, if it is needed.
    fn hashes(&self, chunks: &[LocatedChunk]) -> Vec<Option<Hash>> {
        let wanted = self.documents.compares() || matches!(self.rule, Rule::Hash { .. });
        let hash =
            |located: &LocatedChunk| match self.corpus.inputs[located.input].format.has_records() {
                true => wanted.then(|| blake3::hash(located.chunk.text.as_bytes())),
                false => self.scan.inputs[located.input].and_then(|scanned| scanned.hash),
            };
        chunks.par_iter().map(hash).collect()
    }

    fn add_length(&mut self, input: usize, length: Length) -> Result<(), DataError> {
        match &mut self.input {
            Some((present, sum)) if *present == input => sum.add(length),
            _ => {
                self.finish()?;
                self.input = Some((input, length));
            }
        }
        Ok(())
    }

    fn check_length(&self, input: usize, found: Length) -> Result<(), DataError> {
        match self.scan.inputs[input] {
            Some(scanned) if scanned.length != found => Err(DataError::FileChanged {
                path: self.corpus.inputs[input].name.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// The split that a document at the current position begins in.
    fn split_at_begin(&self, input: usize, hash: Option<&Hash>) -> Split {
        let val = match self.rule {
            Rule::Position { train_left } => train_left == 0,
            Rule::Hash { below } => hash.is_some_and(|hash| first_64_bits(hash) < below),
            Rule::File => self.corpus.split_of(input) == Some(Split::Val),
        };
        match val {
            true => Split::Val,
            false => Split::Train,
        }
    }

    /// Divides a chunk's text into the span for training and the span for validation.
    fn divide<'w>(
        &mut self,
        input: usize,
        text: &'w str,
        length: Length,
        hash: Option<&Hash>,
    ) -> [(Split, &'w str); 2] {
        let split = self.split_at_begin(input, hash);
        let whole = match split {
            Split::Train => [(Split::Train, text), (Split::Val, "")],
            Split::Val => [(Split::Train, ""), (Split::Val, text)],
        };
        let Rule::Position { train_left } = &mut self.rule else {
            return whole;
        };
        let left = *train_left;
        *train_left = left.saturating_sub(length.characters);
        if left >= length.characters || !self.can_be_cut {
            return whole;
        }
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let at = text.char_indices().nth(left);
        let (train, val) = text.split_at(at.map_or(text.len(), |(at, _)| at));
        [(Split::Train, train), (Split::Val, val)]
    }
}

fn first_64_bits(hash: &Hash) -> u64 {
    let (words, _) = hash.as_bytes().as_chunks::<8>();
    u64::from_be_bytes(words[0])
}

/// The number of characters for training, computed as in nanoGPT.
fn border(characters: u64, val_fraction: f64) -> Result<u64, DataError> {
    let train = (characters as f64 * (1.0 - val_fraction)) as u64;
    let train = train.min(characters);
    let empty = |split| DataError::EmptySplit {
        split,
        characters,
        val_fraction,
    };
    match train {
        0 => Err(empty(Split::Train)),
        train if train == characters && val_fraction > 0.0 => Err(empty(Split::Val)),
        train => Ok(train),
    }
}
