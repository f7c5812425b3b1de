//! The second pass: tokenizes documents and writes shards.
//!
//! While all threads tokenize one wave, one of them writes the previous wave.

use std::path::Path;

use emberlm_tokenizer::chat::ChatError;
use emberlm_tokenizer::{Cut, Tokenizer};
use rayon::prelude::*;

use super::assign::{Assigner, Part};
use super::corpus::Corpus;
use super::documents::Counts;
use super::encoding::{Encoded, Encoder};
use super::journal::{Journal, Note};
use super::tally::Tally;
use super::waves::{Reading, Wave, for_each_wave, wave_bytes};
use super::{Phase, PrepareOptions, Progress};
use crate::block_hashes::DatasetBlocks;
use crate::staging::Staging;
use crate::writer::{Shards, SplitWriter};
use crate::{DataError, LeftOut, OnError, Split, Splits, TokenWidth};

/// The length of the spans that a long text is cut into. Chunks of text files already have about this length.
const PART_BYTES: usize = 256 << 10;

/// The result of the second pass.
pub(super) struct Tokenized {
    pub(super) splits: Splits,
    /// The block hashes of the files of both splits.
    pub(super) blocks: DatasetBlocks,
    pub(super) tally: Tally,
    pub(super) counts: Counts,
    pub(super) left_out: LeftOut,
}

/// Tokenizes all of `corpus` except what the saved progress covers.
pub(super) fn tokenize(
    corpus: &Corpus,
    encoder: &Encoder,
    assigner: Assigner,
    staging: &Staging,
    note: Note,
    options: &PrepareOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Tokenized, DataError> {
    let tokenizer = encoder.tokenizer();
    let shards = Shards {
        width: TokenWidth::for_vocab(tokenizer.vocab_size()),
        tokens: options.shard_tokens,
        masked: encoder.is_masked(),
    };
    let writer = |split, state| SplitWriter::resume(staging.folder(), split, shards, state);
    let mut pass = Pass {
        out: staging.out(),
        corpus,
        encoder,
        can_be_cut: options.encoding.can_be_cut(),
        on_error: options.input.on_error,
        unknown: tokenizer.unknown(),
        assigner,
        done: Done {
            pieces: note.tally.pieces,
            bytes: note.tally.bytes,
        },
        pending: None,
        left_out: LeftOut::default(),
        output: Output {
            train: writer(Split::Train, note.train)?,
            val: writer(Split::Val, note.val)?,
            tally: note.tally,
            refused: note.refused,
            journal: Journal::new(staging.notes(), options.journal_bytes),
            progress,
        },
    };
    let bytes = corpus.bytes();
    let phase = Phase::Tokenize;
    progress(Progress::Start { phase, bytes });
    let reading = Reading {
        inputs: corpus.inputs.iter().enumerate().collect(),
        options: &options.input,
        tokenizer: options.encoding.can_be_cut().then_some(tokenizer),
        wave_bytes: wave_bytes(options.journal_bytes),
    };
    for_each_wave(&reading, |wave| pass.take(wave))?;
    pass.finish()
}

/// The work of an earlier process that is still to be skipped: it is read again, but not tokenized.
struct Done {
    pieces: u64,
    bytes: u64,
}

struct Pass<'a> {
    out: &'a Path,
    corpus: &'a Corpus,
    encoder: &'a Encoder<'a>,
    can_be_cut: bool,
    on_error: OnError,
    unknown: Option<u32>,
    assigner: Assigner<'a>,
    done: Done,
    /// The tokens of the previous wave, not written yet.
    pending: Option<EncodedWave>,
    left_out: LeftOut,
    output: Output<'a>,
}

struct EncodedWave {
    parts: Vec<EncodedPart>,
    /// The number of new chunks in the wave, and their bytes of text.
    pieces: u64,
    bytes: u64,
    /// The number of bytes of the input files that were read for it.
    read: u64,
    /// The records that could not be encoded.
    refused: LeftOut,
}

struct EncodedPart {
    split: Split,
    begins: bool,
    unknown: u64,
    cut_inexactly: bool,
    encoded: Encoded,
}

impl Pass<'_> {
    fn take(&mut self, wave: Wave) -> Result<(), DataError> {
        let done = self.skip(&wave)?;
        let parts = self.assigner.assign(&wave.pieces)?;
        let parts = parts.into_iter().filter(|part| part.piece >= done);
        let tokenizer = self.encoder.tokenizer();
        let parts: Vec<Part> = match self.can_be_cut {
            true => parts.flat_map(|part| cut(part, tokenizer)).collect(),
            false => parts.collect(),
        };
        let pending = self.pending.take();
        let encode = |parts: &[Part]| encode(parts, self.encoder, self.unknown);
        let (written, encoded) = rayon::join(
            || pending.map_or(Ok(()), |wave| self.output.write(&wave)),
            || {
                let batches = parts.par_chunks(self.encoder.batch());
                batches.flat_map_iter(encode).collect::<Vec<_>>()
            },
        );
        written?;
        // Check results in order, so that the first invalid document is reported, not the first one found by a
        // thread.
        let mut refused = LeftOut::default();
        let mut kept = Vec::with_capacity(encoded.len());
        for (part, encoded) in parts.iter().zip(encoded) {
            let located = &wave.pieces[part.piece];
            let input = &self.corpus.inputs[located.input];
            match encoded {
                Ok(encoded) => kept.push(encoded),
                Err(ChatError::Tokenizer(source)) => {
                    let path = input.name.clone();
                    return Err(DataError::Tokenize { path, source });
                }
                Err(error) if error.is_of_renderer() => return Err(error.into()),
                Err(error) => {
                    let error = input.broken_record(located.piece.record, error);
                    refused.broken_record(error, self.on_error)?;
                }
            }
        }
        let new = &wave.pieces[done..];
        self.pending = Some(EncodedWave {
            parts: kept,
            refused,
            pieces: new.len() as u64,
            bytes: new
                .iter()
                .map(|located| located.piece.text.len() as u64)
                .sum(),
            read: wave.read,
        });
        self.left_out.add(&wave.left_out);
        Ok(())
    }

    /// Returns how many of the wave's chunks an earlier process has already written.
    fn skip(&mut self, wave: &Wave) -> Result<usize, DataError> {
        let pieces = usize::try_from(self.done.pieces).unwrap_or(usize::MAX);
        let pieces = pieces.min(wave.pieces.len());
        let done = &wave.pieces[..pieces];
        let bytes: u64 = done
            .iter()
            .map(|located| located.piece.text.len() as u64)
            .sum();
        self.done.pieces -= pieces as u64;
        self.done.bytes = self.done.bytes.saturating_sub(bytes);
        match self.done {
            Done {
                pieces: 0,
                bytes: 1..,
            } => Err(self.other_documents()),
            _ => Ok(pieces),
        }
    }

    fn other_documents(&self) -> DataError {
        DataError::CannotContinue {
            path: self.out.to_owned(),
            reason: "the inputs do not give the documents that have been done".to_owned(),
        }
    }

    fn finish(mut self) -> Result<Tokenized, DataError> {
        self.assigner.finish()?;
        if self.done.pieces > 0 {
            return Err(self.other_documents());
        }
        if let Some(wave) = self.pending.take() {
            self.output.write(&wave)?;
        }
        let mut tally = self.output.tally;
        tally.end_document();
        self.left_out.add(&self.output.refused);
        let (train, mut blocks) = self.output.train.finish()?;
        let (val, val_blocks) = self.output.val.finish()?;
        blocks.extend(val_blocks);
        Ok(Tokenized {
            splits: Splits { train, val },
            blocks,
            tally,
            counts: self.assigner.counts(),
            left_out: self.left_out,
        })
    }
}

/// Cuts a long span into spans that can be tokenized separately, to balance the load between threads and to limit
/// each thread's memory for merges.
fn cut<'w>(part: Part<'w>, tokenizer: &Tokenizer) -> Vec<Part<'w>> {
    let mut parts = Vec::new();
    let mut rest = part.text;
    let mut begins = part.begins;
    let longest = tokenizer.longest_part();
    while rest.len() > 2 * PART_BYTES {
        let window = &rest[..rest.floor_char_boundary(PART_BYTES)];
        let Cut { at, exact } = match tokenizer.last_cut(window) {
            Some(at) => Cut { at, exact: true },
            None if rest.len() > longest => tokenizer.cut(rest),
            None => break,
        };
        let (text, after) = rest.split_at(at);
        parts.push(Part {
            text,
            begins,
            cut_inexactly: !exact,
            ..part
        });
        (rest, begins) = (after, false);
    }
    parts.push(Part {
        text: rest,
        begins,
        ..part
    });
    parts
}

fn encode(
    parts: &[Part],
    encoder: &Encoder,
    unknown: Option<u32>,
) -> Vec<Result<EncodedPart, ChatError>> {
    let texts: Vec<_> = parts.iter().map(|part| (part.text, part.begins)).collect();
    let encoded = encoder.encode_batch(&texts).into_iter().zip(parts);
    let encoded = encoded.map(|(encoded, part)| {
        let encoded = encoded?;
        let unknown = unknown.map_or(0, |unknown| {
            encoded.ids.iter().filter(|&&id| id == unknown).count() as u64
        });
        Ok(EncodedPart {
            split: part.split,
            begins: part.begins,
            unknown,
            cut_inexactly: part.cut_inexactly,
            encoded,
        })
    });
    encoded.collect()
}

/// The destination of the tokens.
struct Output<'a> {
    train: SplitWriter<'a>,
    val: SplitWriter<'a>,
    tally: Tally,
    /// The written part of the records that could not be encoded.
    refused: LeftOut,
    journal: Journal<'a>,
    progress: &'a (dyn Fn(Progress) + Sync),
}

impl Output<'_> {
    fn write(&mut self, wave: &EncodedWave) -> Result<(), DataError> {
        for part in &wave.parts {
            let Encoded { ids, learnt, bytes } = &part.encoded;
            let writer = match part.split {
                Split::Train => &mut self.train,
                Split::Val => &mut self.val,
            };
            writer.write(ids, learnt.as_deref(), *bytes, part.begins)?;
            self.tally.add(ids.len() as u64, part.unknown, part.begins);
            self.tally.inexact_cuts += u64::from(part.cut_inexactly);
        }
        self.refused.add(&wave.refused);
        self.tally.pieces += wave.pieces;
        self.tally.bytes += wave.bytes;
        (self.progress)(Progress::Advance { bytes: wave.read });
        if self.journal.is_due(wave.bytes) {
            let note = Note {
                tally: self.tally,
                refused: self.refused.clone(),
                train: self.train.state()?,
                val: self.val.state()?,
            };
            self.journal.write(&note)?;
        }
        Ok(())
    }
}
