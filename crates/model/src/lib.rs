//! Token ids in, logits out: the decoder-only transformer, its closed set of parts and its families.
//!
//! Map, in the order a token meets it: [`tokens`] are what a decoder takes; [`config`] is what can be written down, [`checked`] what is allowed;
//! `init` makes the first weights; [`decoder`] embeds, runs the `block`s (`attention`, `feed_forward`, `norm`, with
//! `position`s and linear attention's `features`) and projects; [`training`] makes its gradients; [`kv_cache`] lets it go
//! on where it stopped; [`count`] says how large it is; `token_scores` how well each token was predicted; `token_table` is the
//! embedding and the head, whole or in parts; [`inference`] is a decoder that only predicts, which may hold `int8` maps, and [`ragged`]
//! the pass over pieces of several sequences at once; [`weights`]
//! reads and writes it; [`families`] are the published models, one declarative file
//! each, and `tiny` ones of the same parts, and [`hugging_face`] the directories that they are exchanged in.

//!
//! | type | purpose |
//! |---|---|
//! | [`ModelConfig`] | a model as the user writes it: sizes and one variant per component |
//! | [`DecoderConfig`] | a configuration that was checked; [`DecoderConfig::init`] makes the model |
//! | [`Decoder`] | token ids to logits or to a loss; [`KvCache`] is its state while it generates |
//! | [`families::preset`] | named configurations |
//! | [`weights`] | reads and writes weights |
//! | [`hugging_face`] | reads and writes the directories of `transformers` |
//! | [`count`] | parameters, memory and operations of a configuration |
//!
//! ```
//! use burn::backend::Flex;
//! use burn::tensor::{Int, Tensor};
//! use emberlm_model::{DecoderConfig, families};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut config = families::preset("pocket-tales").ok_or("no such preset")?.config;
//! (config.vocab_size, config.n_layers) = (16, 1);
//! let config = DecoderConfig::try_from(config)?;
//! let device = Default::default();
//! let decoder = config.init::<Flex>(1, &device);
//! let tokens = Tensor::<Flex, 2, Int>::from_data([[1, 2, 3]], &device);
//! assert_eq!(decoder.forward(tokens).dims(), [1, 3, 16]);
//! # Ok(())
//! # }
//! ```

#![recursion_limit = "256"]

mod attention;
mod block;
pub mod checked;
pub mod config;
pub mod count;
pub mod decoder;
mod dropout;
pub mod error;
pub mod families;
mod features;
mod feed_forward;
pub mod hugging_face;
pub mod inference;
mod init;
mod int8;
pub mod kv_cache;
mod linear;
mod norm;
mod position;
pub mod ragged;
mod reconfigure;
mod tiny;
mod token_scores;
mod token_table;
pub mod tokens;
pub mod training;
pub mod weights;

pub use checked::DecoderConfig;
pub use config::ModelConfig;
pub use decoder::Decoder;
pub use emberlm_kernels::{Activation, RotaryLayout};
pub use error::{ConfigError, HuggingFaceError, InputError, WeightsError};
pub use families::Family;
pub use inference::{InferenceDecoder, Predictor, WeightFormat};
pub use kv_cache::KvCache;
pub use ragged::{Piece, RaggedOutput, Wanted};
pub use token_scores::TokenScores;
pub use token_table::TokenTable;
pub use tokens::{IGNORED, Tokens};
pub use training::TrainingPass;
