//! Token ids in, logits out: the decoder-only transformer, its closed set of parts and its families.
//!
//! Map, in the order a token meets it: [`tokens`] are a decoder's input; [`config`] is a configuration as written, [`checked`] one
//! that is legal; `init` draws initial weights; [`decoder`] is `embeddings`, a `stack` of `block`s (`attention`, `feed_forward`,
//! `norm`, with `position`s and linear attention's `features`) and the `lm_head`; [`nn`] has each of them for use on its own, with
//! `cross_attention` and its `cross_sublayer` for encoder–decoders, and `context`s are their inputs besides hidden states;
//! [`training`] computes gradients; [`kv_cache`] continues a sequence; [`count`] counts parameters, operations and memory;
//! `token_scores` are the losses of single tokens; `token_table` is the
//! embedding and the head, whole or in parts; [`parameters`] lists what is trained; `linear` is a layer with its weight and adapter
//! (`low_rank`), `weight_format` packs a decoder's weights for prediction, and [`ragged`] is the pass over pieces of several
//! sequences at once; [`weights`]
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
pub use ragged::{Piece, RaggedOutput, Wanted};
pub use token_scores::TokenScores;
pub use token_table::TokenTable;
pub use tokens::{IGNORED, Tokens};
pub use training::TrainingPass;
pub use weight_format::WeightFormat;
