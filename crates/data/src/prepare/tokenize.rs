//! The second pass: tokenizes documents and writes shards, divided among ranks.
//!
//! While all threads tokenize one wave, one of them writes the previous wave.

use std::path::Path;

use emberlm_tokenizer::chat::ChatError;
use emberlm_tokenizer::{Cut, Tokenizer};
use rayon::prelude::*;

use super::assign::{AssignedSpan, Assigner};
use super::corpus::Corpus;
use super::documents::Counts;
use super::encoding::{Encoded, Encoder};
use super::journal::{Journal, SavedProgress};
use super::ranks::{PrepareRanks, exchange_round};
use super::tally::Tally;
use super::waves::{Reading, Wave, for_each_wave, wave_bytes};
use super::{Phase, Progress, Work};
use crate::block_hashes::DatasetBlocks;
use crate::staging::Staging;
use crate::writer::{ShardOptions, SplitWriter};
use crate::{DataError, LeftOut, OnError, Split, Splits, TokenWidth};

/// The length of the spans that a long text is cut into. Chunks of text files already have about this length.
const SPAN_BYTES: usize = 256 << 10;

/// The result of the second pass.
pub(super) struct Tokenized {
    pub(super) splits: Splits,
    /// The block hashes of the files of both splits.
    pub(super) blocks: DatasetBlocks,
    pub(super) tally: Tally,
    pub(super) counts: Counts,
    pub(super) left_out: LeftOut,
}

/// The destination of a pass: rank 0 writes, and the other ranks only know how much has been written.
pub(super) enum Destination<'a> {
    Folder(&'a Staging, Box<SavedProgress>),
    RankZero(Tally),
}

/// Tokenizes all of `corpus` except what the saved progress covers, divided among `ranks`. Returns the result on rank 0.
pub(super) fn tokenize(
    work: &Work,
    corpus: &Corpus,
    encoder: &Encoder,
    assigner: Assigner,
    destination: Destination,
) -> Result<Option<Tokenized>, DataError> {
    let &Work {
        ranks,
        options,
        progress,
        ..
    } = work;
    let tokenizer = encoder.tokenizer();
    let shards = ShardOptions {
        width: TokenWidth::for_vocab(tokenizer.vocab_size()),
        tokens: options.shard_tokens,
        masked: encoder.is_masked(),
    };
    let (out, tally, output) = match destination {
        Destination::RankZero(tally) => (work.out, tally, None),
        Destination::Folder(staging, saved) => {
            let writer = |split, state| SplitWriter::resume(staging.folder(), split, shards, state);
            let output = Output {
                train: writer(Split::Train, saved.train)?,
                val: writer(Split::Val, saved.val)?,
                tally: saved.tally,
                refused: saved.refused,
                journal: Journal::new(staging.work_folder(), options.journal_bytes),
                progress,
            };
            (staging.out(), saved.tally, Some(output))
        }
    };
    let mut pass = Pass {
        out,
        ranks,
        waves: 0,
        corpus,
        encoder,
        can_be_cut: options.encoding.can_be_cut(),
        on_error: options.input.on_error,
        unknown: tokenizer.unknown(),
        assigner,
        done: Done {
            chunks: tally.chunks,
            bytes: tally.bytes,
        },
        own: None,
        pending: Vec::new(),
        left_out: LeftOut::default(),
        output,
    };
    let bytes = corpus.bytes();
    let phase = Phase::Tokenize;
    progress(Progress::Start { phase, bytes });
    let reading = Reading {
        inputs: corpus.inputs.iter().enumerate().collect(),
        options: &options.input,
        tokenizer: options.encoding.can_be_cut().then_some(tokenizer),
        wave_bytes: wave_bytes(options.journal_bytes, ranks.count()),
    };
    for_each_wave(&reading, |wave| pass.take(wave))?;
    pass.finish()
}

/// The work of an earlier process that is still to be skipped: it is read again, but not tokenized.
struct Done {
    chunks: u64,
    bytes: u64,
}

struct Pass<'a> {
    out: &'a Path,
    ranks: &'a dyn PrepareRanks,
    /// The waves read so far.
    waves: usize,
    corpus: &'a Corpus,
    encoder: &'a Encoder<'a>,
    can_be_cut: bool,
    on_error: OnError,
    unknown: Option<u32>,
    assigner: Assigner<'a>,
    done: Done,
    /// This rank's wave of the current round.
    own: Option<Result<EncodedWave, DataError>>,
    /// On rank 0, the tokens of the previous round, not written yet.
    pending: Vec<EncodedWave>,
    left_out: LeftOut,
    /// Present on rank 0.
    output: Option<Output<'a>>,
}

/// The tokens of a wave.
#[derive(Debug, PartialEq)]
pub(super) struct EncodedWave {
    pub(super) spans: Vec<EncodedSpan>,
    /// The number of new chunks in the wave, and their bytes of text.
    pub(super) chunks: u64,
    pub(super) bytes: u64,
    /// The number of NUL bytes among them.
    pub(super) nuls: u64,
    /// The number of bytes of the input files that were read for it.
    pub(super) read: u64,
    /// The records that could not be encoded.
    pub(super) refused: LeftOut,
}

/// The tokens of a span.
#[derive(Debug, PartialEq)]
pub(super) struct EncodedSpan {
    pub(super) split: Split,
    pub(super) begins: bool,
    pub(super) unknown: u64,
    pub(super) cut_inexactly: bool,
    pub(super) encoded: Encoded,
}

impl Pass<'_> {
    fn take(&mut self, wave: Wave) -> Result<(), DataError> {
        let done = self.skip(&wave)?;
        let spans = self.assigner.assign(&wave.chunks)?;
        self.left_out.add(&wave.left_out);
        if self.waves % self.ranks.count() == self.ranks.index() {
            self.own = Some(self.encode_wave(&wave, done, spans)?);
        }
        self.waves += 1;
        match self.waves.is_multiple_of(self.ranks.count()) {
            true => self.end_round(),
            false => Ok(()),
        }
    }

    /// Exchanges the waves of a round with the other ranks.
    fn end_round(&mut self) -> Result<(), DataError> {
        self.pending = exchange_round(self.ranks, self.own.take())?;
        Ok(())
    }

    /// Tokenizes the spans of a wave, except those of its first `done` chunks. The inner error is one of the wave.
    fn encode_wave(
        &mut self,
        wave: &Wave,
        done: usize,
        spans: Vec<AssignedSpan>,
    ) -> Result<Result<EncodedWave, DataError>, DataError> {
        let spans = spans.into_iter().filter(|span| span.chunk >= done);
        let tokenizer = self.encoder.tokenizer();
        let spans: Vec<AssignedSpan> = match self.can_be_cut {
            true => spans.flat_map(|span| cut(span, tokenizer)).collect(),
            false => spans.collect(),
        };
        let pending = std::mem::take(&mut self.pending);
        let encode = |spans: &[AssignedSpan]| encode(spans, self.encoder, self.unknown);
        let (written, encoded) = rayon::join(
            || write_all(self.output.as_mut(), &pending),
            || {
                let batches = spans.par_chunks(self.encoder.batch());
                batches.flat_map_iter(encode).collect::<Vec<_>>()
            },
        );
        written?;
        Ok(self.checked(wave, done, &spans, encoded))
    }

    /// The tokens of a wave's spans, without the records that could not be encoded.
    fn checked(
        &self,
        wave: &Wave,
        done: usize,
        spans: &[AssignedSpan],
        encoded: Vec<Result<EncodedSpan, ChatError>>,
    ) -> Result<EncodedWave, DataError> {
        // Check results in order, so that the first invalid document is reported, not the first one found by a
        // thread.
        let mut refused = LeftOut::default();
        let mut kept = Vec::with_capacity(encoded.len());
        for (span, encoded) in spans.iter().zip(encoded) {
            let located = &wave.chunks[span.chunk];
            let input = &self.corpus.inputs[located.input];
            match encoded {
                Ok(encoded) => kept.push(encoded),
                Err(ChatError::Tokenizer(source)) => {
                    let path = input.name.clone();
                    return Err(DataError::Tokenize { path, source });
                }
                Err(error) if error.is_of_renderer() => return Err(error.into()),
                Err(error) => {
                    let error = input.broken_record(located.chunk.record, error);
                    refused.broken_record(error, self.on_error)?;
                }
            }
        }
        let new = &wave.chunks[done..];
        Ok(EncodedWave {
            spans: kept,
            refused,
            chunks: new.len() as u64,
            bytes: new
                .iter()
                .map(|located| located.chunk.text.len() as u64)
                .sum(),
            nuls: new.iter().map(|located| nuls(&located.chunk.text)).sum(),
            read: wave.read,
        })
    }

    /// Returns how many of the wave's chunks an earlier process has already written.
    fn skip(&mut self, wave: &Wave) -> Result<usize, DataError> {
        let chunks = usize::try_from(self.done.chunks).unwrap_or(usize::MAX);
        let chunks = chunks.min(wave.chunks.len());
        let done = &wave.chunks[..chunks];
        let bytes: u64 = done
            .iter()
            .map(|located| located.chunk.text.len() as u64)
            .sum();
        self.done.chunks -= chunks as u64;
        self.done.bytes = self.done.bytes.saturating_sub(bytes);
        match self.done {
            Done {
                chunks: 0,
                bytes: 1..,
            } => Err(self.other_documents()),
            _ => Ok(chunks),
        }
    }

    fn other_documents(&self) -> DataError {
        DataError::CannotContinue {
            path: self.out.to_owned(),
            reason: "the inputs do not give the documents that have been done".to_owned(),
        }
    }

    fn finish(mut self) -> Result<Option<Tokenized>, DataError> {
        self.assigner.finish()?;
        if self.done.chunks > 0 {
            return Err(self.other_documents());
        }
        write_all(self.output.as_mut(), &self.pending)?;
        if !self.waves.is_multiple_of(self.ranks.count()) {
            self.end_round()?;
            write_all(self.output.as_mut(), &self.pending)?;
        }
        let Some(output) = self.output else {
            return Ok(None);
        };
        let mut tally = output.tally;
        tally.end_document();
        self.left_out.add(&output.refused);
        let (train, mut blocks) = output.train.finish()?;
        let (val, val_blocks) = output.val.finish()?;
        blocks.extend(val_blocks);
        Ok(Some(Tokenized {
            splits: Splits { train, val },
            blocks,
            tally,
            counts: self.assigner.counts(),
            left_out: self.left_out,
        }))
    }
}

/// Writes waves, on rank 0.
fn write_all(output: Option<&mut Output>, waves: &[EncodedWave]) -> Result<(), DataError> {
    let Some(output) = output else {
        return Ok(());
    };
    waves.iter().try_for_each(|wave| output.write(wave))
}

/// Cuts a long span into spans that can be tokenized separately, to balance the load between threads and to limit
/// each thread's memory for merges.
fn cut<'w>(span: AssignedSpan<'w>, tokenizer: &Tokenizer) -> Vec<AssignedSpan<'w>> {
    let mut spans = Vec::new();
    let mut rest = span.text;
    let mut begins = span.begins;
    let longest = tokenizer.longest_part();
    while rest.len() > 2 * SPAN_BYTES {
        let window = &rest[..rest.floor_char_boundary(SPAN_BYTES)];
        let Cut { at, exact } = match tokenizer.last_cut(window) {
            Some(at) => Cut { at, exact: true },
            None if rest.len() > longest => tokenizer.cut(rest),
            None => break,
        };
        let (text, after) = rest.split_at(at);
        spans.push(AssignedSpan {
            text,
            begins,
            cut_inexactly: !exact,
            ..span
        });
        (rest, begins) = (after, false);
    }
    spans.push(AssignedSpan {
        text: rest,
        begins,
        ..span
    });
    spans
}

fn encode(
    spans: &[AssignedSpan],
    encoder: &Encoder,
    unknown: Option<u32>,
) -> Vec<Result<EncodedSpan, ChatError>> {
    let texts: Vec<_> = spans.iter().map(|span| (span.text, span.begins)).collect();
    let encoded = encoder.encode_batch(&texts).into_iter().zip(spans);
    let encoded = encoded.map(|(encoded, span)| {
        let encoded = encoded?;
        let unknown = unknown.map_or(0, |unknown| {
            encoded.ids.iter().filter(|&&id| id == unknown).count() as u64
        });
        Ok(EncodedSpan {
            split: span.split,
            begins: span.begins,
            unknown,
            cut_inexactly: span.cut_inexactly,
            encoded,
        })
    });
    encoded.collect()
}

/// The number of NUL bytes in a text.
fn nuls(text: &str) -> u64 {
    // Counts of short parts fit a byte, which the compiler turns into vector instructions.
    let parts = text.as_bytes().chunks(255);
    let counts = parts.map(|part| part.iter().map(|byte| u8::from(*byte == 0)).sum::<u8>());
    counts.map(u64::from).sum()
}

/// The destination of the tokens.
struct Output<'a> {
    train: SplitWriter<'a>,
    val: SplitWriter<'a>,
    tally: Tally,
    /// The records that could not be encoded, in the waves written so far.
    refused: LeftOut,
    journal: Journal<'a>,
    progress: &'a (dyn Fn(Progress) + Sync),
}

impl Output<'_> {
    fn write(&mut self, wave: &EncodedWave) -> Result<(), DataError> {
        for span in &wave.spans {
            let Encoded { ids, learnt, bytes } = &span.encoded;
            let writer = match span.split {
                Split::Train => &mut self.train,
                Split::Val => &mut self.val,
            };
            writer.write(ids, learnt.as_deref(), *bytes, span.begins)?;
            self.tally.add(ids.len() as u64, span.unknown, span.begins);
            self.tally.inexact_cuts += u64::from(span.cut_inexactly);
        }
        self.refused.add(&wave.refused);
        self.tally.chunks += wave.chunks;
        self.tally.bytes += wave.bytes;
        self.tally.nuls += wave.nuls;
        (self.progress)(Progress::Advance { bytes: wave.read });
        if self.journal.is_due(wave.bytes) {
            let saved = SavedProgress {
                tally: self.tally,
                refused: self.refused.clone(),
                train: self.train.state()?,
                val: self.val.state()?,
            };
            self.journal.write(&saved)?;
        }
        Ok(())
    }
}
