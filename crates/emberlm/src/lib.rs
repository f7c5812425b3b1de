//! The emberlm library: trains, samples and serves language models on any Burn backend.
//!
//! This crate re-exports the crates of the workspace. The most common types are at its root, all others in the
//! modules.
//!
//! | module | contents | cargo feature |
//! |---|---|---|
//! | [`tokenizer`] | text to token ids and back, chat templates | |
//! | [`data`] | datasets on disk, and batches of them | |
//! | [`model`] | configurations, families, the decoder, Hugging Face directories | |
//! | [`checkpoint`] | checkpoints, and opening any model directory | |
//! | [`generate`](mod@generate) | sampling, constraints, speculative decoding, the batching engine | |
//! | [`kernels`] | operations of language models as an extension trait of Burn's backends | |
//! | `train` | the trainer: runs, optimizers, schedules, evaluation | `train` |
//! | `serve` | the HTTP server | `serve` |
//! | [`burn`] | the version of Burn that all crates use | |
//!
//! Backends are cargo features too: `flex` (the CPU, enabled by default), `ndarray`, `vulkan`, `wgpu`, `metal`,
//! `cuda` and `rocm` enable the type of the same name in `burn::backend`.
//!
//! The following example writes a model, opens it again and continues a text:
//!
//! ```
//! use emberlm::burn::backend::Flex;
//! use emberlm::checkpoint::{Description, write_untrained};
//! use emberlm::generate::{GenerateOptions, generate};
//! use emberlm::model::families;
//! use emberlm::{DecoderConfig, Model, StopStrings, TextStream, Tokenizer, TokenizerKind};
//! use std::ops::ControlFlow;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tokenizer = Tokenizer::builtin(TokenizerKind::Byte)?;
//! let mut config = families::preset("pocket-tales").ok_or("no such preset")?.config;
//! (config.vocab_size, config.n_layers) = (Some(tokenizer.vocab_size()), 1);
//! let config = DecoderConfig::try_from(config)?;
//! let device = Default::default();
//!
//! // A model with random weights. `train::train` writes a trained one.
//! let folder = tempfile::tempdir()?;
//! let description = Description {
//!     tokenizer: Some(tokenizer.spec()),
//!     ..Description::of_model(&config)
//! };
//! write_untrained(folder.path(), &config.init::<Flex>(1, &device), &description, Some(&tokenizer))?;
//!
//! let model = Model::open(folder.path())?;
//! let decoder = model.decoder::<Flex>(&device)?;
//! let tokenizer = model.require_tokenizer()?;
//! let prompt = tokenizer.encode("Once")?;
//! let options = GenerateOptions { max_new_tokens: 4, ..GenerateOptions::default() };
//! let mut stream = TextStream::after(&tokenizer, &prompt, StopStrings::default());
//! let mut text = String::new();
//! let generation = generate(&decoder, &prompt, &options, |id| {
//!     text += &stream.push(id).visible;
//!     ControlFlow::Continue(())
//! })?;
//! text += &stream.finish().visible;
//! assert_eq!(generation.tokens.len(), 4);
//! # Ok(())
//! # }
//! ```
//!
//! The workspace's `examples` folder has programs that load a model and generate, train on custom tokens, train
//! in a custom loop, and serve a model in process.

#![recursion_limit = "256"]

pub use burn;

#[doc(inline)]
pub use emberlm_checkpoint as checkpoint;
#[doc(inline)]
pub use emberlm_data as data;
#[doc(inline)]
pub use emberlm_generate as generate;
#[doc(inline)]
pub use emberlm_kernels as kernels;
#[doc(inline)]
pub use emberlm_model as model;
#[cfg(feature = "serve")]
#[doc(inline)]
pub use emberlm_serve as serve;
#[doc(inline)]
pub use emberlm_tokenizer as tokenizer;
#[cfg(feature = "train")]
#[doc(inline)]
pub use emberlm_trainer as train;

pub use emberlm_checkpoint::{Checkpoint, Model, ModelError};
pub use emberlm_data::{Dataset, Packing, Split, TrainBatches};
pub use emberlm_generate::{Engine, EngineConfig, GenerateOptions, Generator, SamplerConfig};
pub use emberlm_kernels::{Backend, TrainingBackend};
pub use emberlm_model::{Decoder, DecoderConfig, ModelConfig, Tokens};
pub use emberlm_tokenizer::{StopStrings, TextDelta, TextStream, Tokenizer, TokenizerKind};
