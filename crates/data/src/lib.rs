//! Tokenized datasets: preparation, storage on disk, and batches for training and evaluation.
//!
//! | type | purpose |
//! |---|---|
//! | [`prepare()`], [`PrepareOptions`] | prepares a dataset from text files or records |
//! | [`write_token_dataset`] | writes your own token ids as a dataset |
//! | [`Adoption`], [`export()`] | import and export of other programs' token files |
//! | [`Dataset`], [`Manifest`] | a dataset directory: memory-mapped tokens and their description |
//! | [`Windows`], [`Packing`] | a split as sequences of one length |
//! | [`TrainBatches`], [`EvalBatches`], [`Batch`] | inputs and targets, for training in a seeded order |
//! | [`read_objects`] | the records of JSON Lines, tables and Parquet files as objects |
//! | [`read_fields()`], [`Shuffle`] | the fields of labelled texts or pairs of texts, and a seeded order of them |
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
//! Writing, from the lowest layer up:
//!
//! | file | contents |
//! |---|---|
//! | `inputs` | readers for text files and records |
//! | `conversations` | the published forms of conversations, and their conversion to the one that is rendered |
//! | `preferences`, `prompts` | [`read_conversations`], [`read_preferences`], [`read_prompts`]: records for fine-tuning |
//! | `fields` | [`read_fields()`]: several fields of each record, for labelled texts and pairs of texts |
//! | `texts` | [`for_each_text`]: the texts of a corpus, without writing a dataset |
//! | `prepare` | [`prepare()`]: turns inputs into a dataset, in parallel; can be resumed |
//! | `token_dataset` | [`write_token_dataset`]: writes your own token ids as a dataset |
//! | `tales` | [`tales`]: a seeded generator of short tales with a known exact entropy |
//! | `writer` | writes the shards of one split in sequence |
//! | `staging` | atomic creation of a dataset directory; interrupted work can be resumed |
//!
//! Between writing and reading: `shard` ([`Shard`], [`ShardWriter`]), `manifest` ([`Manifest`]), `block_hashes` (hashes
//! of the files' blocks, stored next to the manifest), `split` ([`Split`]), `names` (names of splits, formats and rules),
//! `record_fault` ([`RecordFault`]), `not_a_dataset` ([`NotADataset`]), `error` ([`DataError`]).
//!
//! Full passes over a dataset, which read each token once in bounded memory:
//!
//! | file | contents |
//! |---|---|
//! | `survey` | a pass over a shard: hash, documents, bytes of text, out-of-range ids |
//! | `stream` | a pass over a split that yields its tokens |
//! | `adopt` | [`Adoption`]: uses other programs' token files as a dataset |
//! | `export` | [`export()`]: writes a dataset as other programs' token files |
//! | `verify` | [`verify()`]: checks a dataset against its manifest |
//! | `inspect` | [`inspect()`]: statistics and excerpts of a dataset |
//!
//! Reading:
//!
//! | file | contents |
//! |---|---|
//! | `dataset` | [`Dataset`] and [`TokenSplit`]: memory-mapped tokens |
//! | `unverified` | [`UnverifiedFiles`]: files without block hashes, verified as a whole |
//! | `packing` | [`Packing`]: packs whole documents into rows and indexes the rows |
//! | `windows` | [`Windows`]: a split as windows of text or as rows of documents |
//! | `order` | [`WindowOrder`]: the seeded order of training windows, a pure function of the index |
//! | `mix` | [`Mix`]: selects the dataset of each window, a pure function of the index |
//! | `batch` | [`Batch`]: inputs and targets |
//! | `prefetch` | prefetching by worker threads, in order |
//! | `loader` | [`TrainBatches`]: prefetched batches of one dataset or a mix |
//! | `evaluation` | [`EvalBatches`]: each token of a split exactly once |
//! | `evaluation_windows` | [`EvalChoice`]: the windows of an evaluation, by the contents of the split |
//!
//! Memory use in training does not grow with the corpus: shards are memory-mapped, and the order is computed, not
//! stored. Rows of whole documents need an index of 8 bytes per row.

mod adopt;
mod batch;
mod block_hashes;
mod conversations;
mod dataset;
mod error;
mod evaluation;
mod evaluation_windows;
mod export;
mod fields;
pub mod formats;
mod inputs;
mod inspect;
mod lists;
mod loader;
mod manifest;
mod mix;
mod names;
mod not_a_dataset;
mod order;
mod packing;
mod preferences;
mod prefetch;
mod prepare;
mod prompts;
mod record_fault;
mod shard;
mod split;
mod staging;
mod stream;
mod survey;
#[cfg(test)]
#[path = "../../../tests/tables.rs"]
mod tables;
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
pub use evaluation_windows::EvalChoice;
pub use export::{ExportFormat, ExportOptions, Exported, export};
pub use fields::{FieldRecord, RecordField, read_fields};
pub use inputs::{
    DocumentChunk, Documents, Format, Input, InputOptions, LeftOut, OnError, STANDARD_INPUT,
    expand, read_objects,
};
pub use inspect::{
    Bin, DocumentsFound, Excerpt, Inspection, Lengths, SplitInspection, TokenCount, inspect,
};
pub use loader::TrainBatches;
pub use manifest::{Floor, Manifest, MaskEntry, ShardEntry, SplitManifest, Splits};
pub use mix::Mix;
pub use not_a_dataset::{MANIFEST_FILE, NotADataset};
pub use order::{Shuffle, WindowOrder};
pub use packing::Packing;
pub use preferences::{
    PreferenceEncoder, PreferenceForm, PreferenceRecord, read_conversations, read_preferences,
};
pub use prepare::{
    DEFAULT_JOURNAL_BYTES, Encoding, Phase, PrepareOptions, PrepareRanks, Prepared, Progress,
    SingleRank, SplitRule, Warning, prepare, prepare_among,
};
pub use prompts::{PromptEncoder, PromptRecord, read_prompts};
pub use record_fault::RecordFault;
pub use shard::{DEFAULT_SHARD_TOKENS, Mask, Shard, ShardLayout, ShardWriter, TokenWidth};
pub use split::Split;
pub use tales::{TalesConfig, write_tales_dataset};
pub use texts::for_each_text;
pub use token_dataset::{TokenDatasetOptions, write_token_dataset};
pub use unverified::UnverifiedFiles;
pub use verify::{FileCheck, Verification, verify};
pub use windows::{Packed, Windows};

/// Chat templates and their tokens, re-exported because they are part of this crate's interface.
pub use emberlm_tokenizer::chat::{ChatError, ChatTemplateSpec, ChatTokens, TextTemplate};
pub use emberlm_tokenizer::{
    EncodedSequence, SequenceEncoder, TOKENIZER_FILE, TokenBytes, Tokenizer, TokenizerChoice,
    TokenizerError, TokenizerSpec,
};
