//! Writes Hugging Face directories of encoder–decoders.

use std::path::Path;

use emberlm_kernels::Backend;
use serde_json::{Map, Value, json};

use super::{KNOWN, exchange};
use crate::config::difference::first_difference;
use crate::error::HuggingFaceError;
use crate::exchange::fields::Fields;
use crate::exchange::t5::{self, EXCHANGES, Exchange};
use crate::hugging_face::export::{expressible, write_config};
use crate::hugging_face::{ExportOptions, Exported, write_parameters};
use crate::transformer::checked::TransformerConfig;
use crate::transformer::encoder_decoder::EncoderDecoderSettings;
use crate::transformer::model::Transformer;
use crate::weights::published;

/// Writes an encoder–decoder's `config.json` and weights into an existing directory, as the type `model_type` of
/// `transformers`.
///
/// # Errors
/// `model_type` is not an encoder–decoder's, the type cannot express the model, or a file cannot be written.
pub fn export<B: Backend>(
    model: &Transformer<B>,
    model_type: &str,
    folder: &Path,
    options: &ExportOptions,
) -> Result<Exported, HuggingFaceError> {
    let exchange = exchange(model_type).ok_or_else(|| {
        let known = EXCHANGES.each_ref().map(|exchange| exchange.model_type);
        HuggingFaceError::Field {
            field: "model_type".to_owned(),
            value: model_type.to_owned(),
            rule: format!("must be one of {}", known.join(", ")),
        }
    })?;
    let fields = described(exchange, model.config(), options)?;
    write_config(&fields, folder)?;
    let source = |path: &str| t5::source(model.config(), path);
    let tensors = published(model, options.element, source);
    write_parameters(tensors, folder, options.shard_bytes)
}

/// Builds a model's `config.json` and verifies it by reading it back.
fn described(
    exchange: &Exchange,
    config: &TransformerConfig,
    options: &ExportOptions,
) -> Result<Map<String, Value>, HuggingFaceError> {
    let not_expressible = |field, value| HuggingFaceError::NotExpressible {
        model_type: exchange.model_type,
        field,
        value,
    };
    let Some(settings) = EncoderDecoderSettings::of(config) else {
        return Err(not_expressible(
            "architecture".to_owned(),
            config.kind().name().to_owned(),
        ));
    };
    let mut fields = options.fields.clone();
    fields.insert("architectures".to_owned(), json!([exchange.architecture()]));
    fields.insert("model_type".to_owned(), json!(exchange.model_type));
    fields.insert("dtype".to_owned(), json!(options.element.torch_name()));
    fields.extend(exchange.write(&settings));
    let again = exchange.read(&Fields::new(&fields), settings.head.tied)?;
    let again = EncoderDecoderSettings::of(&TransformerConfig::try_from(again)?);
    match first_difference(&Some(&settings), &again.as_ref(), &[]) {
        Some((field, value)) => Err(not_expressible(field, value)),
        None => Ok(fields),
    }
}

/// The model type that can express a model: `preferred`, or else the first of all types.
///
/// # Errors
/// No type can; the error is that of `preferred`, or of T5.
pub fn model_type_of(
    config: &TransformerConfig,
    preferred: Option<&str>,
) -> Result<&'static str, HuggingFaceError> {
    let preferred = preferred.and_then(exchange).unwrap_or(&KNOWN[0]);
    let described = |exchange| described(exchange, config, &ExportOptions::default());
    Ok(expressible(preferred, &KNOWN, described)?.model_type)
}
