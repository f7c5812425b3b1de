//! The model that the fields of a `config.json` describe.

use std::path::Path;

use emberlm_system::read;
use serde_json::{Map, Value};

use super::{CONFIG_FILE, in_weights, open_weights, text_part};
use crate::config::{ModelConfig, ModelKind};
use crate::error::HuggingFaceError;
use crate::exchange::encoder::HeadStyle;
use crate::exchange::fields::Fields;
use crate::exchange::{FileFacts, ModelType, known_fields, quantization};
use crate::families::Family;
use crate::transformer::checked::TransformerConfig;
use crate::weights::quantized::Quantization;

/// Builds the model configuration described by the fields of a `config.json`. An encoder without a class is taken as one
/// without a pooler, and the head of an encoder–decoder as tied: these follow from the tensors.
///
/// # Errors
/// Those of [`HuggingFaceModel::open`](super::HuggingFaceModel::open).
pub fn read_config(fields: &Map<String, Value>) -> Result<TransformerConfig, HuggingFaceError> {
    let part = text_part::fields(fields)?;
    let fields = Fields::new(part.as_ref().unwrap_or(fields));
    read_described(&fields, FileFacts::default()).map(|description| description.config)
}

/// The kind of model that a `config.json` describes; `None` if no family has its model type.
pub fn kind_of(fields: &Map<String, Value>) -> Option<ModelKind> {
    let part = text_part::fields(fields).ok()?;
    let fields = part.as_ref().unwrap_or(fields);
    let model_type = fields.get("model_type").and_then(Value::as_str)?;
    Family::of_model_type(model_type).map(Family::kind)
}

/// The model that a `config.json` describes.
pub(crate) struct Description {
    pub(super) config: TransformerConfig,
    pub(super) quantization: Option<Quantization>,
    pub(super) heads: Option<HeadStyle>,
    pub(super) warnings: Vec<String>,
}

/// The family whose models have the `model_type` of a `config.json`, and its representation.
fn described_type(fields: &Fields<'_>) -> Result<(Family, Box<dyn ModelType>), HuggingFaceError> {
    let name = fields.text("model_type")?;
    let types = || {
        let families = Family::ALL.into_iter();
        families.filter_map(|family| Some((family, family.of_transformers()?)))
    };
    types().find(|(_, own)| own.name() == name).ok_or_else(|| {
        let known: Vec<&str> = types().map(|(_, own)| own.name()).collect();
        fields.error("model_type", format!("must be one of {}", known.join(", ")))
    })
}

/// Reads the facts of the tensors in a directory whose `config.json` has `fields`.
pub(super) fn facts(
    path: &Path,
    fields: &Map<String, Value>,
) -> Result<FileFacts, HuggingFaceError> {
    let (_, own) = described_type(&Fields::new(fields))?;
    let Some(read) = own.facts() else {
        return Ok(FileFacts::default());
    };
    read(&open_weights(path)?).map_err(in_weights(path))
}

/// Builds the description of the model in the fields of a `config.json`.
pub(crate) fn read_described(
    fields: &Fields<'_>,
    facts: FileFacts,
) -> Result<Description, HuggingFaceError> {
    let (family, own) = described_type(fields)?;
    let config = described_config(family, &*own, fields, facts)?;
    let quantization = match own.quantized() {
        Some(exchange) => quantization::read(fields, exchange, &config)?,
        None => None,
    };
    Ok(Description {
        config,
        quantization,
        heads: own.heads(fields)?,
        warnings: known_fields::warnings(fields),
    })
}

/// Builds the configuration in the fields of a `config.json` of a family.
pub(crate) fn described_config(
    family: Family,
    own: &dyn ModelType,
    fields: &Fields<'_>,
    facts: FileFacts,
) -> Result<TransformerConfig, HuggingFaceError> {
    let raw = own.read(fields, facts)?;
    Ok(TransformerConfig::try_from(ModelConfig { family, ..raw })?)
}

/// Reads the fields of a directory's `config.json`.
pub(super) fn read_fields(path: &Path) -> Result<Map<String, Value>, HuggingFaceError> {
    let file = path.join(CONFIG_FILE);
    let text = read::read_text(&file, read::DESCRIPTION_LIMIT).map_err(|source| {
        let path = file.clone();
        HuggingFaceError::Io { path, source }
    })?;
    serde_json::from_str(&text).map_err(|error| HuggingFaceError::Json {
        path: file,
        reason: error.to_string(),
    })
}

/// The representation of a family in Hugging Face directories.
pub(crate) fn model_type_of(family: Family) -> Result<Box<dyn ModelType>, HuggingFaceError> {
    family.of_transformers().ok_or(HuggingFaceError::NoType {
        family: family.name(),
    })
}
