//! Mapping between a family's models and Hugging Face's `config.json` and tensor names.
//!
//! `fields` reads the fields of a `config.json`, and `known_fields` lists those without an effect; `rope`, `layers`, `experts`,
//! `names` and `quantization` handle fields that several model types share. `encoder` and `t5` have the model types of
//! encoders and encoder–decoders; those of decoders are in their families.

pub(crate) mod encoder;
pub(crate) mod experts;
pub(crate) mod fields;
pub(crate) mod known_fields;
pub(crate) mod layers;
pub(crate) mod names;
pub(crate) mod quantization;
pub(crate) mod rope;
pub(crate) mod t5;

use serde_json::{Map, Value};

use self::fields::Fields;
use crate::config::ModelConfig;
use crate::error::HuggingFaceError;
use crate::transformer::checked::TransformerConfig;

/// Field of the padding token's id. In some model types its default is outside of a small vocabulary.
pub(crate) const PADDING: &str = "pad_token_id";

/// Representation of a family's models in Hugging Face directories.
#[derive(Clone, Copy)]
pub(crate) struct Exchange {
    /// Value of `model_type`.
    pub(crate) model_type: &'static str,
    /// Class of `transformers` that loads the model.
    pub(crate) architecture: &'static str,
    /// Prefix of all tensor names except the head's. Files saved without the head lack it.
    pub(crate) prefix: &'static str,
    /// Name of the embedding.
    pub(crate) embedding: &'static str,
    /// Name of the untied head.
    pub(crate) head: &'static str,
    /// Returns true if a tensor is not a weight, but a mask or rotary table that older versions saved.
    pub(crate) constant: fn(&str) -> bool,
    /// Reads the model configuration from a `config.json`.
    pub(crate) read: fn(&Fields<'_>) -> Result<ModelConfig, HuggingFaceError>,
    /// Writes the fields that describe a model. The export reads them back to detect settings that they cannot express.
    pub(crate) write: fn(&TransformerConfig) -> Map<String, Value>,
    /// Adds the parameters that the model type always has. They are zero and do not change the model's output.
    pub(crate) complete: fn(&mut ModelConfig),
}
