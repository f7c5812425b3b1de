//! Models on disk: reads and writes checkpoints, and opens any directory that holds a model.
//!
//! A model is opened for prediction without the trainer: only its weights, configuration, tokenizer and chat template are
//! read.
//!
//! | type | purpose |
//! |---|---|
//! | [`Model`] | a model directory of any kind: a run, a checkpoint, a new model or a Hugging Face directory |
//! | [`EncoderModel`], [`Embedder`] | a directory of an encoder, and texts as vectors |
//! | [`Checkpoint`] | a checkpoint whose files match its manifest |
//! | [`Description`] | what a checkpoint's weights belong to: model configuration, tokenizer, chat template |
//! | [`SourceFiles`] | the files that a fine-tuned model keeps of the Hugging Face directory that it was trained from |
//! | [`Progress`] | the step at which a checkpoint was written; the trainer reads its whole state instead |
//! | [`Keep`] | which checkpoints of a run [`prune`] keeps |
//! | [`ModelError`], [`CheckpointError`] | the errors of opening, and of reading and writing |
//!
//! ```
//! use burn::backend::Flex;
//! use emberlm_checkpoint::{Description, Model, write_untrained};
//! use emberlm_model::{DecoderConfig, families};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut config = families::preset("pocket-tales").ok_or("no such preset")?.config;
//! (config.vocab_size, config.n_layers) = (Some(16), 1);
//! let config = DecoderConfig::try_from(config)?;
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
mod embedder;
mod encoder_model;
mod error;
pub mod keep;
pub mod model;
mod source_files;
pub mod write;

pub use checkpoint::{Checkpoint, Description, FOLDER, Progress};
pub use embedder::Embedder;
pub use encoder_model::EncoderModel;
pub use error::{CheckpointError, ModelError};
pub use keep::{Keep, prune, sweep};
pub use model::Model;
pub use source_files::SourceFiles;
pub use write::write_untrained;
