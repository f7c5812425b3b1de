//! Reads and writes checkpoints, and opens any directory that contains a model.
//!
//! Opening a model for inference does not need the trainer: only weights, configuration, tokenizer and chat template
//! are read.
//!
//! | type | purpose |
//! |---|---|
//! | [`Model`] | a model of any kind: a run, a checkpoint, an untrained model, a Hugging Face directory or a GGUF file |
//! | [`ModelKind`] | the kind of model in a directory, which determines its opener |
//! | [`EncoderModel`], [`Embedder`] | a directory of an encoder, and texts as vectors |
//! | [`ModelKind`] | which of these types opens a directory |
//! | [`Checkpoint`] | a checkpoint whose files match its manifest |
//! | [`Description`] | model configuration, tokenizer and chat template of a checkpoint |
//! | [`SourceFiles`] | files that a fine-tuned model keeps from its original Hugging Face directory |
//! | [`Progress`] | step at which a checkpoint was written; the trainer reads its complete state instead |
//! | [`PartialCheckpoint`](write::PartialCheckpoint) | a checkpoint that is being written |
//! | [`Model::sampling_defaults`] | the sampling settings that a model recommends |
//! | [`Keep`] | retention policy for [`prune`] |
//! | [`ModelError`], [`CheckpointError`] | errors of opening models, and of reading and writing checkpoints |
//!
//! ```
//! use burn::backend::Flex;
//! use emberlm_checkpoint::{Description, Model, write_untrained};
//! use emberlm_model::{TransformerConfig, families};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut config = families::preset("pocket-tales").ok_or("no such preset")?.config;
//! (config.vocab_size, config.n_layers) = (Some(16), 1);
//! let config = TransformerConfig::try_from(config)?;
//! let device = Default::default();
//!
//! let folder = tempfile::tempdir()?;
//! let description = Description::of_model(&config);
//! write_untrained(folder.path(), &config.init::<Flex>(1, &device), &description, None)?;
//!
//! let model = Model::open(folder.path())?;
//! assert_eq!(model.about()?, "a model that has not been trained");
//! let decoder = model.decoder::<Flex>(&device)?;
//! assert_eq!(decoder.config().vocab_size(), 16);
//! # Ok(())
//! # }
//! ```

#![recursion_limit = "256"]

pub mod checkpoint;
mod description;
mod embedder;
mod encoder_model;
mod error;
pub mod formats;
pub mod keep;
mod kind;
pub mod model;
mod published_files;
mod sampling;
mod sentence_files;
mod source_files;
pub mod write;

pub use checkpoint::{Checkpoint, FOLDER, Progress};
pub use description::{AdapterDescription, BaseModel, Description};
pub use embedder::{Embedder, unit_vector};
pub use emberlm_model::ModelKind;
pub use encoder_model::EncoderModel;
pub use error::{CheckpointError, ModelError};
pub use keep::{Keep, prune, sweep};
pub use kind::kind_of;
pub use model::Model;
pub use source_files::SourceFiles;
pub use write::write_untrained;
