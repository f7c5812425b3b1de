//! Decoder-only transformer: token ids in, logits out.
//!
//! | module | contents |
//! |---|---|
//! | [`config`] | the configuration as written |
//! | `params` | the parameters of a module by their paths |
//! | [`nn`] | every component, for standalone use too |
//! | [`transformer`] | decoders, encoders and encoder–decoders, made of components |
//! | [`weights`] | reading and writing weights |
//! | `exchange` | what the fields of a `config.json` mean |
//! | [`families`] | published models, one declarative file each, and tiny models with the same components |
//! | [`adapter`] | adapters of whole models, and their files in the format of PEFT |
//! | [`gguf`] | GGUF files, read like directories |
//! | [`hugging_face`] | model directories in the format of `transformers` |
//! | [`gguf_export`] | models as GGUF files |
//!
//! A module uses only modules above it.
//!
//! | type | purpose |
//! |---|---|
//! | [`ModelConfig`] | configuration as written by the user: sizes and one variant per component |
//! | [`TransformerConfig`] | a validated configuration; [`TransformerConfig::init`] builds the model |
//! | [`Transformer`] | computes logits or a loss from token ids; [`KvCache`] is its state during generation |
//! | [`families::Preset`] | a named configuration; [`families::preset`] finds it |
//! | [`hugging_face::HuggingFaceModel`] | a model directory in the format of `transformers` |
//! | [`count::Parameters`] | number of parameters by component |
//!
//! ```
//! use burn::backend::Flex;
//! use burn::tensor::{Int, Tensor};
//! use emberlm_model::{TransformerConfig, families};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut config = families::preset("pocket-tales").ok_or("no such preset")?.config;
//! (config.vocab_size, config.n_layers) = (Some(16), 1);
//! let config = TransformerConfig::try_from(config)?;
//! let device = Default::default();
//! let decoder = config.init::<Flex>(1, &device);
//! let tokens = Tensor::<Flex, 2, Int>::from_data([[1, 2, 3]], &device);
//! assert_eq!(decoder.forward(tokens).dims(), [1, 3, 16]);
//! # Ok(())
//! # }
//! ```

#![recursion_limit = "256"]

pub mod adapter;
pub mod config;
pub mod error;
mod exchange;
pub mod families;
pub mod gguf;
pub mod gguf_export;
pub mod hugging_face;
pub mod nn;
mod params;
pub mod transformer;
pub mod weights;

pub use adapter::LoraConfig;
pub use config::{ModelConfig, ModelKind};
pub use emberlm_kernels::{Activation, PackedFormat, PackedWeight, RotaryLayout};
pub use error::{
    AdapterError, CacheFormatError, ConfigError, ContextError, HuggingFaceError, InputError,
    WeightsError,
};
pub use families::Family;
pub use nn::kv_cache::{CacheFormat, KvCache, SavedCache};
pub use nn::linear::{InputRecorder, Linear, LinearWeight};
pub use nn::low_rank::{Adapter, LowRank, LowRankConfig};
pub use nn::packed_rows::PackedRows;
pub use nn::router_loss::{ExpertLoad, RouterCoefficients};
pub use nn::token_table::TokenTable;
pub use nn::tokens::{IGNORED_ELEMENT, Tokens, id_tensor};
pub use nn::{kv_cache, tokens};
pub use transformer::calibration::{InputImportance, InputProducts};
pub use transformer::checked::TransformerConfig;
pub use transformer::encoder_decoder::EncodedSource;
pub use transformer::input::ModelInput;
pub use transformer::model::Transformer;
pub use transformer::parameters::{Parameter, ParameterRole, Parameters};
pub use transformer::ragged::{RaggedOutput, RequestedOutput, SequenceChunk};
pub use transformer::token_scores::TokenScores;
pub use transformer::training::{CompleteGradient, GradientSink, PassGradients, TrainingPass};
pub use transformer::weight_format::{StoredFormats, WeightFormat};
pub use transformer::{checked, count, encoder, encoder_decoder, parameters, ragged, training};
