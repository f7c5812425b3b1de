//! The form in which a family's models are exchanged in Hugging Face directories.
//!
//! `fields` reads the fields of a `config.json`; `rope`, `layers`, `experts`, `names` and `quantization` are those that several
//! types share.

pub(crate) mod experts;
pub(crate) mod fields;
pub(crate) mod layers;
pub(crate) mod names;
pub(crate) mod quantization;
pub(crate) mod rope;

use serde_json::{Map, Value};

use self::fields::Fields;
use crate::checked::DecoderConfig;
use crate::config::ModelConfig;
use crate::error::HuggingFaceError;

/// The form of a family's models in a Hugging Face directory.
pub(crate) struct Exchange {
    /// The value of `model_type`.
    pub(crate) model_type: &'static str,
    /// The class that `transformers` loads it with.
    pub(crate) architecture: &'static str,
    /// The prefix of all names but the head's; files of the bare model lack it.
    pub(crate) prefix: &'static str,
    /// The embedding's tensor.
    pub(crate) embedding: &'static str,
    /// The untied head's tensor.
    pub(crate) head: &'static str,
    /// True if a tensor is a mask or a table of angles that older versions kept beside the weights.
    pub(crate) constant: fn(&str) -> bool,
    /// The model that a `config.json` describes.
    pub(crate) read: fn(&Fields<'_>) -> Result<ModelConfig, HuggingFaceError>,
    /// The fields that describe a model; what they cannot say is found by reading them again.
    pub(crate) write: fn(&DecoderConfig) -> Map<String, Value>,
    /// Gives a model the parameters that the type always has; new ones are zeros, which changes nothing it computes.
    pub(crate) complete: fn(&mut ModelConfig),
}
