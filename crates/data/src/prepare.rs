//! Text files to a dataset.
//!
//! Two passes: the first checks every file and counts characters, the second tokenizes in parallel. The output does not
//! depend on the number of threads: blocks are cut where the tokens stay the same, and written in their order.

use std::path::{Path, PathBuf};

use emberlm_tokenizer::{Tokenizer, TokenizerChoice, TokenizerError, TokenizerKind};
use rayon::prelude::*;

use crate::corpus::expand;
use crate::scan::{Scan, Scanned, scan};
use crate::shard::check_shard_tokens;
use crate::staging::Staging;
use crate::text_blocks::{BLOCK_BYTES, TextBlocks};
use crate::writer::SplitWriter;
use crate::{DEFAULT_SHARD_TOKENS, DataError, Manifest, Split, Splits, TokenWidth};

/// How much text is tokenized at a time, by all threads together.
const WAVE_BYTES: usize = 16 << 20;

/// How a dataset is made.
#[derive(Clone, Debug, PartialEq)]
pub struct PrepareOptions {
    /// Which tokenizer; [`TokenizerKind::Char`] takes its alphabet from all the documents.
    pub tokenizer: TokenizerChoice,
    /// The part of all characters that is kept for validation, at the end: at least 0 and below 1.
    pub val_fraction: f64,
    /// The most tokens in a shard: 1 to 2,147,483,647.
    pub shard_tokens: u64,
    /// Whether an existing dataset may be replaced.
    pub force: bool,
    /// The command, as the manifest is to tell it.
    pub command: String,
}

impl Default for PrepareOptions {
    fn default() -> Self {
        Self {
            tokenizer: TokenizerKind::Gpt2.into(),
            val_fraction: 0.1,
            shard_tokens: DEFAULT_SHARD_TOKENS,
            force: false,
            command: String::new(),
        }
    }
}

/// What [`prepare`] is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reading every file once: is it UTF-8, how many characters has it.
    Scan,
    /// Tokenizing and writing.
    Tokenize,
}

/// How far [`prepare`] is, for a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A phase begins.
    Start {
        /// Which.
        phase: Phase,
        /// How many bytes of text it will go through.
        bytes: u64,
    },
    /// The present phase has gone through some more bytes of text.
    Advance {
        /// How many more.
        bytes: u64,
    },
}

/// Makes the dataset directory `out` of the text files and folders `inputs` (see [`crate::expand`]).
///
/// Each document begins with the end-of-text token where the tokenizer has one. The validation split is the end of the
/// documents put together: of `n` characters, the first `n * (1 - val_fraction)`, rounded down, are for training, and a
/// document that the border cuts begins anew after it. A tokenizer that is not built in lies in the directory as
/// `tokenizer.json`. The directory appears whole or not at all.
///
/// # Errors
/// Where an option is out of range; where a tokenizer's file cannot be read or used; where an input is missing, empty or not UTF-8; where a split would be empty although
/// it should not; where the output exists and may not be replaced, or is not a dataset; and where a file cannot be read
/// or written, as on a full disk. The output is then as it was.
pub fn prepare(
    inputs: &[PathBuf],
    out: &Path,
    options: &PrepareOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Manifest, DataError> {
    check_options(options)?;
    let documents = expand(inputs)?;
    let known = match &options.tokenizer {
        TokenizerChoice::Named(TokenizerKind::Char) => None,
        TokenizerChoice::Named(kind) => Some(Tokenizer::builtin(*kind)?),
        TokenizerChoice::File(path) => Some(Tokenizer::from_file(path)?),
    };
    // Before the long work, not after it.
    let staging = Staging::begin(out, options.force)?;
    let report = |phase| {
        let bytes = documents.iter().map(|document| document.bytes).sum();
        progress(Progress::Start { phase, bytes });
    };

    report(Phase::Scan);
    let scan = scan(&documents, known.is_none(), progress)?;
    let border = border(&scan, options.val_fraction)?;
    let tokenizer = match known {
        Some(tokenizer) => tokenizer,
        None => Tokenizer::char_from_alphabet(scan.alphabet)?,
    };

    report(Phase::Tokenize);
    let writer = |split| {
        let width = TokenWidth::for_vocab(tokenizer.vocab_size());
        SplitWriter::new(staging.folder(), split, width, options.shard_tokens)
    };
    let mut job = Job {
        tokenizer: &tokenizer,
        progress,
        train: writer(Split::Train),
        val: writer(Split::Val),
        wave: Vec::new(),
        wave_bytes: 0,
        train_left: border,
    };
    for (document, scanned) in documents.iter().zip(&scan.documents) {
        job.add_document(&document.path, scanned)?;
    }
    let splits = job.finish()?;
    staging.save_tokenizer(&tokenizer)?;
    let manifest = Manifest::new(options.command.clone(), tokenizer.spec(), splits);
    staging.commit(&manifest)?;
    Ok(manifest)
}

fn check_options(options: &PrepareOptions) -> Result<(), DataError> {
    if !(0.0..1.0).contains(&options.val_fraction) {
        return Err(DataError::Value {
            field: "val_fraction",
            value: options.val_fraction.to_string(),
            rule: "it must be at least 0 and below 1",
        });
    }
    check_shard_tokens(options.shard_tokens)
}

/// How many characters are for training, as nanoGPT counts them.
fn border(scan: &Scan, val_fraction: f64) -> Result<u64, DataError> {
    let characters: u64 = scan
        .documents
        .iter()
        .map(|document| document.characters)
        .sum();
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

/// A block on its way through the tokenizer.
struct Block<'a> {
    path: &'a Path,
    split: Split,
    new_document: bool,
    text: String,
}

/// The second pass.
struct Job<'a> {
    tokenizer: &'a Tokenizer,
    progress: &'a (dyn Fn(Progress) + Sync),
    train: SplitWriter<'a>,
    val: SplitWriter<'a>,
    wave: Vec<Block<'a>>,
    wave_bytes: usize,
    /// How many characters are still for training.
    train_left: u64,
}

impl<'a> Job<'a> {
    fn add_document(&mut self, path: &'a Path, expected: &Scanned) -> Result<(), DataError> {
        let mut blocks = TextBlocks::open(path, Some(self.tokenizer), BLOCK_BYTES)?;
        let mut found = Scanned::default();
        // The split that the document's last block is in: a document begins in each split it reaches.
        let mut last = None;
        while let Some(text) = blocks.next_block()? {
            found.add(&text);
            for (split, text) in self.divide(text) {
                let new_document = last.replace(split) != Some(split);
                self.wave_bytes += text.len();
                self.wave.push(Block {
                    path,
                    split,
                    new_document,
                    text,
                });
            }
            if self.wave_bytes >= WAVE_BYTES {
                self.flush()?;
            }
        }
        if found != *expected {
            let path = path.to_owned();
            return Err(DataError::FileChanged { path });
        }
        Ok(())
    }

    /// The parts of `text` by split; at the border there are two.
    fn divide(&mut self, mut text: String) -> Vec<(Split, String)> {
        let left = usize::try_from(self.train_left).unwrap_or(usize::MAX);
        let Some((at, _)) = text.char_indices().nth(left) else {
            self.train_left -= text.chars().count() as u64;
            return vec![(Split::Train, text)];
        };
        self.train_left = 0;
        let val = (Split::Val, text.split_off(at));
        if text.is_empty() {
            return vec![val];
        }
        vec![(Split::Train, text), val]
    }

    /// Tokenizes what has gathered, in parallel, and writes it in its order.
    fn flush(&mut self) -> Result<(), DataError> {
        let encode = |block: &Block| {
            let mut ids: Vec<u32> = Vec::new();
            if block.new_document {
                ids.extend(self.tokenizer.end_of_text());
            }
            let encoded = self.tokenizer.encode(&block.text);
            ids.extend(encoded.map_err(|source| tokenize_error(block.path, source))?);
            (self.progress)(Progress::Advance {
                bytes: block.text.len() as u64,
            });
            Ok(ids)
        };
        let encoded: Vec<Result<Vec<u32>, DataError>> = self.wave.par_iter().map(encode).collect();
        for (block, ids) in self.wave.iter().zip(encoded) {
            let writer = match block.split {
                Split::Train => &mut self.train,
                Split::Val => &mut self.val,
            };
            writer.write(&ids?, block.text.len() as u64, block.new_document)?;
        }
        self.wave.clear();
        self.wave_bytes = 0;
        Ok(())
    }

    fn finish(mut self) -> Result<Splits, DataError> {
        self.flush()?;
        Ok(Splits {
            train: self.train.finish()?,
            val: self.val.finish()?,
        })
    }
}

fn tokenize_error(path: &Path, source: TokenizerError) -> DataError {
    DataError::Tokenize {
        path: path.to_owned(),
        source,
    }
}
