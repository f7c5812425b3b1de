//! The emberlm library: trains, samples and serves language models on any Burn backend.
//!
//! [`open()`] opens a model of any kind as a [`TextModel`], which maps text to text. For everything below that, this crate
//! re-exports the crates of the workspace. The most common types are at its root, all others in the modules.
//!
//! | module | contents | cargo feature |
//! |---|---|---|
//! | [`prelude`] | the names that most programs need | |
//! | [`tokenizer`] | text to token ids and back, chat templates | |
//! | [`data`] | datasets on disk, and batches of them | |
//! | [`model`] | configurations, families, the decoder, Hugging Face directories | |
//! | [`checkpoint`] | checkpoints, and opening any model directory | |
//! | [`generate`](mod@generate) | sampling, constraints, speculative decoding, the batching engine | |
//! | [`kernels`] | operations of language models as an extension trait of Burn's backends | |
//! | `train` | the trainer: runs, optimizers, schedules, evaluation | `train` |
//! | `serve` | the HTTP server | `serve` |
//! | [`burn`], [`backend`] | the version of Burn that all crates use, and its backends | |
//!
//! Backends are cargo features too: `flex` (the CPU, enabled by default), `ndarray`, `vulkan`, `wgpu`, `metal`,
//! `cuda` and `rocm` enable the type of the same name in `burn::backend`.
//!
//! A model continues a text:
//!
//! ```no_run
//! use emberlm::prelude::*;
//!
//! # fn main() -> Result<(), emberlm::Error> {
//! let mut model = emberlm::open::<Flex>("my-model")?;
//! let text = model.generate("Once upon a time").max_new_tokens(50).text()?;
//! println!("{text}");
//! # Ok(())
//! # }
//! ```
//!
//! A model answers a conversation, and the answer is printed while it is generated:
//!
//! ```no_run
//! use emberlm::prelude::*;
//!
//! # fn main() -> Result<(), emberlm::Error> {
//! let mut model = emberlm::open::<Flex>("my-model")?;
//! let mut messages = vec![ChatMessage::user("Why is the sky blue?")];
//! let answer = model.chat(&messages).stream(|part| print!("{part}"))?;
//! messages.push(ChatMessage::assistant(answer));
//! # Ok(())
//! # }
//! ```
//!
//! The following example writes a model with random weights, and opens it for text and for token ids:
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use emberlm::checkpoint::{Description, write_untrained};
//! use emberlm::generate::generate;
//! use emberlm::model::families;
//! use emberlm::prelude::*;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tokenizer = Tokenizer::char_from_alphabet("\nOnce".chars())?;
//! let mut config = families::preset("pocket-tales").ok_or("no such preset")?.config;
//! (config.vocab_size, config.n_layers) = (Some(tokenizer.vocab_size()), 1);
//! let config = TransformerConfig::try_from(config)?;
//! let description = Description {
//!     tokenizer: Some(tokenizer.spec()),
//!     ..Description::of_model(&config)
//! };
//! let decoder = config.init::<Flex>(1, &Default::default());
//! let folder = tempfile::tempdir()?;
//! write_untrained(&folder, &decoder, &description, Some(&tokenizer))?;
//!
//! let mut model = emberlm::open::<Flex>(&folder)?;
//! let completion = model.generate("Once").max_new_tokens(4).temperature(0.0);
//! let text = completion.text()?;
//!
//! let prompt = tokenizer.encode("Once")?;
//! let options = GenerateOptions {
//!     max_new_tokens: 4,
//!     chooser: emberlm::SamplerConfig::greedy().into(),
//!     ..GenerateOptions::default()
//! };
//! let generation = generate(&decoder, &prompt, &options, |_id| ControlFlow::Continue(()))?;
//! assert_eq!(tokenizer.decode(&generation.tokens)?, text);
//! # Ok(())
//! # }
//! ```
//!
//! The workspace's `examples` folder has complete programs.

mod completion;
mod completion_settings;
mod error;
mod open_options;
pub mod prelude;
mod text_generation;
mod text_model;

pub use burn;
pub use burn::backend;

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

pub use completion::Completion;
pub use completion_settings::{ANSWER_TOKENS, CONTINUATION_TOKENS};
pub use error::Error;
pub use open_options::OpenOptions;
pub use text_generation::{TextEnd, TextGeneration};
pub use text_model::{TextModel, open};

pub use emberlm_checkpoint::{Checkpoint, Model, ModelError, ModelKind};
pub use emberlm_data::{Dataset, Packing, Split, TrainBatches};
pub use emberlm_generate::{
    Engine, EngineConfig, GenerateOptions, Generator, SamplerConfig, SamplingDefaults,
};
pub use emberlm_kernels::{Backend, TrainingBackend};
pub use emberlm_model::{ModelConfig, Tokens, Transformer, TransformerConfig};
pub use emberlm_tokenizer::chat::ChatMessage;
pub use emberlm_tokenizer::{StopStrings, TextDelta, TextStream, Tokenizer, TokenizerKind};
