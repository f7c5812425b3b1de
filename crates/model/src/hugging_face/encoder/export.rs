//! Writes Hugging Face directories of encoders.

use std::path::Path;

use emberlm_kernels::Backend;
use serde_json::{Map, Value, json};

use super::{config, source};
use crate::config::difference::first_difference;
use crate::error::HuggingFaceError;
use crate::exchange::encoder::{EXCHANGES, EncoderExchange, write_labels};
use crate::hugging_face::export::{expressible, write_config};
use crate::hugging_face::{ExportOptions, Exported, write_parameters};
use crate::transformer::checked::TransformerConfig;
use crate::transformer::encoder::{EncoderHeadConfig, EncoderSettings};
use crate::transformer::model::Transformer;
use crate::weights::published;

/// Writes an encoder's `config.json` and weights into an existing directory, as the type `model_type` of
/// `transformers`.
///
/// # Errors
/// `model_type` is not an encoder's, the type cannot express the encoder, or a file cannot be written.
pub fn export<B: Backend>(
    encoder: &Transformer<B>,
    model_type: &str,
    folder: &Path,
    options: &ExportOptions,
) -> Result<Exported, HuggingFaceError> {
    let Some(exchange) = EXCHANGES
        .into_iter()
        .find(|exchange| exchange.model_type == model_type)
    else {
        return Err(HuggingFaceError::Field {
            field: "model_type".to_owned(),
            value: model_type.to_owned(),
            rule: format!(
                "must be one of {}",
                EXCHANGES.map(|exchange| exchange.model_type).join(", ")
            ),
        });
    };
    let fields = described(exchange, encoder.config(), options)?;
    write_config(&fields, folder)?;
    let source = |path: &str| source(exchange, encoder.config(), path);
    let mut tensors = published(encoder, options.element, source);
    if matches!(
        encoder.config().encoder_head(),
        None | Some(EncoderHeadConfig::Pooler)
    ) {
        // The bare model's names have no prefix.
        for tensor in &mut tensors {
            tensor.strip_prefix(exchange.prefix);
        }
    }
    write_parameters(tensors, folder, options.shard_bytes)
}

/// Builds an encoder's `config.json` and verifies it by reading it back.
fn described(
    exchange: &EncoderExchange,
    written: &TransformerConfig,
    options: &ExportOptions,
) -> Result<Map<String, Value>, HuggingFaceError> {
    let not_expressible = |field, value| HuggingFaceError::NotExpressible {
        model_type: exchange.model_type,
        field,
        value,
    };
    let Some(settings) = EncoderSettings::of(written) else {
        return Err(not_expressible(
            "architecture".to_owned(),
            written.kind().name().to_owned(),
        ));
    };
    let head = settings.head.as_ref();
    let mut fields = options.fields.clone();
    fields.insert(
        "architectures".to_owned(),
        json!([exchange.architecture(head)]),
    );
    fields.insert("model_type".to_owned(), json!(exchange.model_type));
    fields.insert("dtype".to_owned(), json!(options.element.torch_name()));
    fields.insert("tie_word_embeddings".to_owned(), json!(true));
    fields.extend((exchange.write)(&settings));
    write_labels(head, &mut fields);
    let has_pooler = head == Some(&EncoderHeadConfig::Pooler);
    let again = EncoderSettings::of(&config(exchange, &fields, has_pooler)?);
    let written = Some(&settings);
    match first_difference(&written, &again.as_ref(), &[]) {
        Some((field, value)) => Err(not_expressible(field, value)),
        None => Ok(fields),
    }
}

/// The model type that can express an encoder: `preferred`, or else the first of all types.
///
/// # Errors
/// No type can; the error is that of `preferred`, or of BERT.
pub fn model_type_of(
    config: &TransformerConfig,
    preferred: Option<&str>,
) -> Result<&'static str, HuggingFaceError> {
    let is_preferred = |exchange: &&EncoderExchange| Some(exchange.model_type) == preferred;
    let preferred = EXCHANGES.into_iter().find(is_preferred);
    let described = |exchange| described(exchange, config, &ExportOptions::default());
    let exchange = expressible(preferred.unwrap_or(EXCHANGES[0]), EXCHANGES, described)?;
    Ok(exchange.model_type)
}
