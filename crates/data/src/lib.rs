//! Token ids on disk, and from there to batches.
//!
//! Writing, a floor at a time:
//!
//! | file | what it holds |
//! |---|---|
//! | `inputs` | what a corpus is read from: files of text or of records, one document after another |
//! | `corpus` | files and folders expanded into documents |
//! | `text_blocks` | a document read in blocks that can be tokenized apart |
//! | `scan` | the first pass: is it UTF-8, how long is it |
//! | `prepare` | [`prepare`]: text files to a dataset, in parallel |
//! | `tales` | [`tales`]: a seeded generator of short tales whose exact entropy is known |
//! | `writer` | one split's shards, filled one after the other |
//! | `staging` | a dataset directory that is whole or absent |
//!
//! Between writing and reading: `shard` ([`Shard`], [`ShardWriter`]), `manifest` ([`Manifest`]), `split` ([`Split`]).
//!
//! Reading:
//!
//! | file | what it holds |
//! |---|---|
//! | `dataset` | [`Dataset`] and [`TokenSplit`]: memory-mapped tokens |
//! | `packing` | [`Packing`]: rows of whole documents, and where each row begins |
//! | `windows` | [`Windows`]: a split in stretches of text or in rows of documents |
//! | `order` | [`WindowOrder`]: the seeded order of training windows, a pure function of the index |
//! | `mix` | [`Mix`]: which of several datasets the next window comes from, a pure function of the index |
//! | `batch` | [`Batch`]: inputs and targets side by side |
//! | `prefetch` | things made ahead by other threads, in order |
//! | `loader` | [`TrainBatches`]: batches of one dataset or a mix, made ahead |
//! | `evaluation` | [`EvalBatches`]: every token of a split once |
//!
//! Training's memory does not grow with a corpus: shards are memory-mapped, and the order is computed, not stored. Rows of
//! whole documents alone have an index, of 8 bytes per row.

mod batch;
mod corpus;
mod dataset;
mod error;
mod evaluation;
mod inputs;
mod loader;
mod manifest;
mod mix;
mod order;
mod packing;
mod prefetch;
mod prepare;
mod scan;
mod shard;
mod split;
mod staging;
pub mod tales;
mod text_blocks;
mod windows;
mod writer;

pub use batch::{Batch, IGNORED};
pub use corpus::{Document, expand};
pub use dataset::{Dataset, TokenSplit};
pub use error::DataError;
pub use evaluation::EvalBatches;
pub use inputs::{Format, Input, InputOptions, OnError};
pub use loader::TrainBatches;
pub use manifest::{Floor, MANIFEST_FILE, Manifest, MaskEntry, ShardEntry, SplitManifest, Splits};
pub use mix::Mix;
pub use order::WindowOrder;
pub use packing::Packing;
pub use prepare::{Phase, PrepareOptions, Progress, prepare};
pub use shard::{DEFAULT_SHARD_TOKENS, Mask, Shard, ShardLayout, ShardWriter, TokenWidth};
pub use split::Split;
pub use tales::{TalesConfig, write_tales_dataset};
pub use windows::{Packed, Windows};

/// What a dataset's ids are read with: part of its interface.
pub use emberlm_tokenizer::{TOKENIZER_FILE, TokenBytes, Tokenizer, TokenizerError, TokenizerSpec};
