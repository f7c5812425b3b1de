//! Other heads for trained encoders.

use emberlm_kernels::Backend;
use serde_json::{Map, Value};

use super::export::{ExportOptions, config_fields, with_required_parameters};
use super::model_type_of;
use crate::config::ModelKind;
use crate::error::HuggingFaceError;
use crate::exchange::encoder::HeadStyle;
use crate::exchange::fields::Fields;
use crate::transformer::checked::TransformerConfig;
use crate::transformer::model::Transformer;

/// The form of the heads of an encoder, whose directory would have the additional `fields`.
///
/// # Errors
/// The model type cannot express the configuration.
pub fn heads_of(
    config: &TransformerConfig,
    fields: Map<String, Value>,
) -> Result<Option<HeadStyle>, HuggingFaceError> {
    let own = model_type_of(config.family())?;
    let config = with_required_parameters(config, &*own)?;
    let options = ExportOptions {
        fields,
        ..ExportOptions::default()
    };
    let fields = config_fields(&config, &*own, None, &options)?;
    own.heads(&Fields::new(&fields))
}

/// The weights of a model in one of another configuration, as [`Transformer::reconfigured`]. An encoder may have another
/// head: its parameters keep the weights that a directory has under the same names and in the same shapes, as in
/// `transformers`, and the others have their initial values by `seed`. The family of an encoder or an encoder–decoder
/// stays that of its weights.
///
/// # Errors
/// Another setting differs.
pub fn with_head_of<B: Backend>(
    model: &Transformer<B>,
    config: &TransformerConfig,
    seed: u64,
) -> Result<Transformer<B>, HuggingFaceError> {
    if config.kind() == ModelKind::Decoder {
        return Ok(model.reconfigured(config)?);
    }
    let held = model.config();
    let mut wanted = config.raw();
    wanted.family = held.family();
    let wanted = TransformerConfig::try_from(wanted)?;
    let own = model_type_of(held.family())?;
    let is_shared = |path: &str| own.source(held, path) == own.source(&wanted, path);
    Ok(model.with_head_of(&wanted, seed, is_shared)?)
}
