//! Token ids in, logits out: the decoder-only transformer, its closed set of parts and its families.
//!
//! Map, in the order a token meets it: [`tokens`] are what a decoder takes; [`config`] is what can be written down, [`checked`] what is allowed;
//! `init` makes the first weights; [`decoder`] embeds, runs the `block`s (`attention`, `feed_forward`, `norm`, with
//! `position`s and linear attention's `features`) and projects; [`training`] makes its gradients; [`kv_cache`] lets it go
//! on where it stopped; [`count`] says how large it is; `token_scores` how well each token was predicted; `token_table` is the
//! embedding and the head, whole or in parts; [`parameters`] lists what is trained; `linear` is a layer with its weight and adapter (`low_rank`), `weight_format` packs a
//! decoder's weights for prediction, and [`ragged`] is the pass over pieces of several sequences at once; [`weights`]
//! reads and writes it; [`families`] are the published models, one declarative file
//! each, and `tiny` ones of the same parts, and [`hugging_face`] the directories that they are exchanged in.

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
mod init;
pub mod kv_cache;
mod linear;
mod low_rank;
mod norm;
pub mod parameters;
mod position;
pub mod ragged;
mod reconfigure;
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
pub use error::{ConfigError, HuggingFaceError, InputError, WeightsError};
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
