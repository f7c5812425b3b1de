//! Token ids on disk, and from there to batches.
//!
//! | type | purpose |
//! |---|---|
//! | [`prepare()`], [`PrepareOptions`] | makes a dataset of files of text or of records |
//! | [`write_token_dataset`] | makes a dataset of token ids of one's own |
//! | [`Adoption`], [`export()`] | datasets from and for other programs' token files |
//! | [`Dataset`], [`Manifest`] | a dataset directory: memory-mapped tokens, and what they are |
//! | [`Windows`], [`Packing`] | a split as sequences of one length |
//! | [`TrainBatches`], [`EvalBatches`], [`Batch`] | inputs and targets, for training in a seeded order |
//! | [`verify()`], [`inspect()`] | checks a dataset against its manifest; shows its contents |
//!
//! ```
//! use emberlm_data::{Dataset, Packing, Split, TalesConfig, TrainBatches, write_tales_dataset};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let tales = folder.path().join("tales");
//! write_tales_dataset(&tales, &TalesConfig { seed: 1, tales: 20 }, false, "an example")?;
//! let dataset = Dataset::open(&tales)?;
//! let windows = dataset.windows(Split::Train, 32, Packing::Stream)?;
//! let batches = TrainBatches::new(windows, 1)?;
//! // The first four sequences of 32 tokens, and for each token the one that follows it.
//! let batch = batches.batch(0, 4)?;
//! assert_eq!(batch.inputs.len(), 4 * 32);
//! assert_eq!(batch.inputs[1], batch.targets[0]);
//! # Ok(())
//! # }
//! ```
//!
//! # Files
//!
//! Writing, a floor at a time:
//!
//! | file | what it holds |
//! |---|---|
//! | `inputs` | what a corpus is read from: files of text or of records, one document after another |
//! | `texts` | [`for_each_text`]: the texts of a corpus, for those who make no dataset of them |
//! | `prepare` | [`prepare()`]: inputs to a dataset, in parallel, restartable |
//! | `token_dataset` | [`write_token_dataset`]: token ids of one's own as a dataset |
//! | `tales` | [`tales`]: a seeded generator of short tales whose exact entropy is known |
//! | `writer` | one split's shards, filled one after the other |
//! | `staging` | a dataset directory that is whole or absent, and can be gone on with |
//!
//! Between writing and reading: `shard` ([`Shard`], [`ShardWriter`]), `manifest` ([`Manifest`]), `block_hashes` (hashes of
//! the files' blocks, beside the manifest), `split` ([`Split`]).
//!
//! Whole datasets, each token once, in bounded memory:
//!
//! | file | what it holds |
//! |---|---|
//! | `survey` | a pass over a shard: its hash, documents, bytes of text, ids that should not be |
//! | `stream` | a pass over a split, for whoever wants the tokens themselves |
//! | `adopt` | [`Adoption`]: other programs' token files as a dataset |
//! | `export` | [`export()`]: a dataset as other programs' token files |
//! | `verify` | [`verify()`]: whether a dataset is what its manifest says |
//! | `inspect` | [`inspect()`]: what a dataset looks like |
//!
//! Reading:
//!
//! | file | what it holds |
//! |---|---|
//! | `dataset` | [`Dataset`] and [`TokenSplit`]: memory-mapped tokens |
//! | `unverified` | [`UnverifiedFiles`]: files without block hashes, verified as a whole |
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
//! only whole documents have an index, of 8 bytes per row.

mod adopt;
mod batch;
mod block_hashes;
mod dataset;
mod error;
mod evaluation;
mod export;
mod inputs;
mod inspect;
mod lists;
mod loader;
mod manifest;
mod mix;
mod not_a_dataset;
mod order;
mod packing;
mod prefetch;
mod prepare;
mod shard;
mod split;
mod staging;
mod stream;
mod survey;
pub mod tales;
mod texts;
mod token_dataset;
mod unverified;
mod verify;
mod windows;
mod writer;

pub use adopt::{AdoptOptions, Adopted, Adoption};
pub use batch::{Batch, IGNORED};
pub use dataset::{Dataset, TokenSplit};
pub use error::DataError;
pub use evaluation::EvalBatches;
pub use export::{ExportFormat, ExportOptions, Exported, export};
pub use inputs::{
    Documents, Format, Input, InputOptions, LeftOut, OnError, Piece, RecordFault, STANDARD_INPUT,
    expand,
};
pub use inspect::{
    Bin, DocumentsFound, Excerpt, Inspection, Lengths, SplitInspection, TokenCount, inspect,
};
pub use loader::TrainBatches;
pub use manifest::{Floor, MANIFEST_FILE, Manifest, MaskEntry, ShardEntry, SplitManifest, Splits};
pub use mix::Mix;
pub use not_a_dataset::NotADataset;
pub use order::WindowOrder;
pub use packing::Packing;
pub use prepare::{
    DEFAULT_JOURNAL_BYTES, Encoding, Phase, PrepareOptions, Prepared, Progress, SplitRule, Warning,
    prepare,
};
pub use shard::{DEFAULT_SHARD_TOKENS, Mask, Shard, ShardLayout, ShardWriter, TokenWidth};
pub use split::Split;
pub use tales::{TalesConfig, write_tales_dataset};
pub use texts::for_each_text;
pub use token_dataset::{TokenDatasetOptions, write_token_dataset};
pub use unverified::UnverifiedFiles;
pub use verify::{FileCheck, Verification, verify};
pub use windows::{Packed, Windows};

/// The tokenizer of a dataset's ids, which is part of this crate's interface.
pub use emberlm_tokenizer::chat::ChatTemplateSpec;
pub use emberlm_tokenizer::{TOKENIZER_FILE, TokenBytes, Tokenizer, TokenizerError, TokenizerSpec};
