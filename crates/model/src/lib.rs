//! Decoder-only transformer: token ids in, logits out.
//!
//! | module | contents |
//! |---|---|
//! | [`config`], [`checked`] | the configuration as written, and a validated one |
//! | [`tokens`] | a decoder's input |
//! | [`decoder`] | `embeddings`, a `stack` of `block`s and the `lm_head` |
//! | [`encoder`] | the bidirectional transformer: embeddings, a `stack` and a head for tokens or classes |
//! | [`encoder_decoder`] | two stacks, the second with cross-attention to the first: T5 |
//! | [`nn`] | every component for standalone use, including cross-attention for encoder–decoders |
//! | `context` | inputs of components in addition to the hidden states |
//! | `init` | weight initialization |
//! | [`training`] | gradients |
//! | [`kv_cache`] | cached keys and values for generation |
//! | [`ragged`] | one pass over the next tokens of several sequences |
//! | [`count`] | parameters, operations and memory of a configuration |
//! | [`parameters`] | list of parameters with their roles |
//! | `token_scores` | losses of individual tokens |
//! | `token_table` | weights of embedding and head, split if they exceed a device buffer |
//! | `mixture`, `router_loss` | mixtures of experts, and the losses of their routers |
//! | `linear`, `low_rank` | linear layers and low-rank adapters |
//! | [`adapter`] | adapters of whole models, and their files in the format of PEFT |
//! | `weight_format` | packed weights for inference |
//! | [`weights`] | reading and writing weights |
//! | [`families`], `tiny` | published models, one declarative file each, and tiny models with the same components |
//! | [`hugging_face`] | model directories in the format of `transformers` |
//! | [`gguf`] | GGUF files, read like such directories, and written |
//! | `calibration` | statistics of the inputs of linear layers |
//!
//! | type | purpose |
//! |---|---|
//! | [`ModelConfig`] | configuration as written by the user: sizes and one variant per component |
//! | [`DecoderConfig`] | a validated configuration; [`DecoderConfig::init`] builds the model |
//! | [`Decoder`] | computes logits or a loss from token ids; [`KvCache`] is its state during generation |
//! | [`families::Preset`] | a named configuration; [`families::preset`] finds it |
//! | [`hugging_face::HuggingFaceModel`] | a model directory in the format of `transformers` |
//! | [`count::Parameters`] | number of parameters by component |
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

pub mod adapter;
mod adapter_rows;
mod alibi;
mod attention;
mod block;
mod calibration;
pub mod checked;
pub mod config;
mod context;
pub mod count;
mod cross_attention;
mod cross_sublayer;
pub mod decoder;
mod dropout;
mod embeddings;
pub mod encoder;
pub mod encoder_decoder;
pub mod error;
mod exchange;
pub mod families;
mod features;
mod feed_forward;
pub mod gguf;
mod heads;
pub mod hugging_face;
mod init;
pub mod kv_cache;
mod linear;
mod lm_head;
mod low_rank;
mod mixture;
pub mod nn;
mod norm;
mod packed_rows;
pub mod parameters;
mod position;
pub mod ragged;
mod reconfigure;
mod router_loss;
mod stack;
mod tiny;
mod token_scores;
mod token_table;
pub mod tokens;
pub mod training;
mod weight_format;
pub mod weights;

pub use adapter::LoraConfig;
pub use calibration::{InputImportance, InputProducts, InputRecorder};
pub use checked::DecoderConfig;
pub use config::ModelConfig;
pub use decoder::Decoder;
pub use emberlm_kernels::{Activation, PackedFormat, PackedWeight, RotaryLayout};
pub use encoder::{Encoder, EncoderConfig};
pub use encoder_decoder::{EncodedSource, EncoderDecoder, EncoderDecoderConfig};
pub use error::{
    AdapterError, CacheFormatError, ConfigError, ContextError, HuggingFaceError, InputError,
    WeightsError,
};
pub use families::Family;
pub use kv_cache::{CacheFormat, KvCache};
pub use linear::{Linear, LinearWeight};
pub use low_rank::{Adapter, LowRank, LowRankConfig};
pub use packed_rows::PackedRows;
pub use parameters::{Parameter, ParameterRole, Parameters};
pub use ragged::{RaggedOutput, RequestedOutput, SequenceChunk};
pub use router_loss::{ExpertLoad, RouterCoefficients};
pub use token_scores::TokenScores;
pub use token_table::TokenTable;
pub use tokens::{IGNORED, Tokens};
pub use training::{CompleteGradient, GradientSink, PassGradients, TrainingPass};
pub use weight_format::{StoredFormats, WeightFormat};
