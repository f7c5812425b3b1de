//! Decoder-only transformer: token ids in, logits out.
//!
//! | module | contents |
//! |---|---|
//! | [`config`], [`checked`] | the configuration as written, and a validated one |
//! | [`tokens`] | a decoder's input |
//! | [`decoder`] | `embeddings`, a `stack` of `block`s and the `lm_head` |
//! | [`nn`] | every component for standalone use, cross-attention for encoder–decoders included |
//! | `context` | inputs of components other than their hidden states |
//! | `init` | weight initialization |
//! | [`training`] | gradients |
//! | [`kv_cache`] | continuation of a sequence |
//! | [`ragged`] | one pass over pieces of several sequences |
//! | [`count`] | parameters, operations and memory of a configuration |
//! | [`parameters`] | list of trained parameters |
//! | `token_scores` | losses of single tokens |
//! | `token_table` | embedding and head, whole or in parts |
//! | `linear`, `low_rank` | a linear layer with its weight and adapter |
//! | `weight_format` | packed weights for inference |
//! | [`weights`] | reading and writing of weights |
//! | [`families`], `tiny` | published models, one declarative file each, and tiny models with the same components |
//! | [`hugging_face`] | directories in the format of `transformers` |
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
//! (config.vocab_size, config.n_layers) = (Some(16), 1);
//! let config = DecoderConfig::try_from(config)?;
//! let device = Default::default();
//! let decoder = config.init::<Flex>(1, &device);
//! let tokens = Tensor::<Flex, 2, Int>::from_data([[1, 2, 3]], &device);
//! assert_eq!(decoder.forward(tokens).dims(), [1, 3, 16]);
//! # Ok(())
//! # }
//! ```

#![recursion_limit = "256"]

mod alibi;
mod attention;
mod block;
pub mod checked;
pub mod config;
mod context;
pub mod count;
mod cross_attention;
mod cross_sublayer;
pub mod decoder;
mod dropout;
mod embeddings;
pub mod error;
mod exchange;
pub mod families;
mod features;
mod feed_forward;
mod heads;
pub mod hugging_face;
mod init;
pub mod kv_cache;
mod linear;
mod lm_head;
mod low_rank;
pub mod nn;
mod norm;
pub mod parameters;
mod position;
pub mod ragged;
mod reconfigure;
mod stack;
mod tiny;
mod token_scores;
mod token_table;
pub mod tokens;
pub mod training;
mod weight_format;
pub mod weights;

pub use checked::DecoderConfig;
pub use config::ModelConfig;
pub use decoder::Decoder;
pub use emberlm_kernels::{Activation, PackedFormat, PackedWeight, RotaryLayout};
pub use error::{ConfigError, ContextError, HuggingFaceError, InputError, WeightsError};
pub use families::Family;
pub use kv_cache::KvCache;
pub use linear::{Linear, LinearWeight};
pub use low_rank::{LowRank, LowRankConfig};
pub use parameters::{Parameter, ParameterRole, Parameters};
pub use ragged::{Piece, RaggedOutput, RequestedOutput};
pub use token_scores::TokenScores;
pub use token_table::TokenTable;
pub use tokens::{IGNORED, Tokens};
pub use training::TrainingPass;
pub use weight_format::WeightFormat;
