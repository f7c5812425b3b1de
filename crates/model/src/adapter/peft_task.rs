//! PEFT's `task_type`: the class of the model that an adapter is for.

use serde_json::{Map, Value};

use crate::config::{EncoderHeadConfig, ModelKind};
use crate::error::AdapterError;
use crate::transformer::checked::TransformerConfig;

/// The field.
const TASK: &str = "task_type";
/// A decoder.
const CAUSAL: &str = "CAUSAL_LM";
/// An encoder–decoder.
const PAIR: &str = "SEQ_2_SEQ_LM";
/// A classifier of texts.
const SEQUENCE: &str = "SEQ_CLS";
/// A classifier of tokens.
const TOKEN: &str = "TOKEN_CLS";
/// An encoder with a pooler or without a head.
const FEATURES: &str = "FEATURE_EXTRACTION";

/// Every task whose adapters are read.
pub(super) const TASKS: [&str; 5] = [CAUSAL, PAIR, SEQUENCE, TOKEN, FEATURES];

/// The modules that PEFT saves with the adapter of any classifier.
const CLASSIFIERS: [&str; 2] = ["classifier", "score"];

/// The task of a model; `None` for masked language models, for which PEFT has none.
pub(super) fn task_of(config: &TransformerConfig) -> Option<&'static str> {
    match (config.kind(), config.encoder_head()) {
        (ModelKind::Decoder, _) => Some(CAUSAL),
        (ModelKind::EncoderDecoder, _) => Some(PAIR),
        (ModelKind::Encoder, Some(EncoderHeadConfig::Sequence { .. })) => Some(SEQUENCE),
        (ModelKind::Encoder, Some(EncoderHeadConfig::Token { .. })) => Some(TOKEN),
        (ModelKind::Encoder, Some(EncoderHeadConfig::MaskedLm { .. })) => None,
        (ModelKind::Encoder, Some(EncoderHeadConfig::Pooler) | None) => Some(FEATURES),
    }
}

/// Checks that the task in the fields of an adapter, if there is one, is that of its base model.
///
/// # Errors
/// It is another one.
pub(super) fn check_task(
    fields: &Map<String, Value>,
    config: &TransformerConfig,
) -> Result<(), AdapterError> {
    let task = fields.get(TASK).and_then(Value::as_str);
    match (task, task_of(config)) {
        (Some(task), own) if own != Some(task) => Err(AdapterError::Unsupported {
            field: TASK.to_owned(),
            value: format!("{task:?}"),
            reason: match own {
                Some(own) => format!(": the task of the base model is {own:?}"),
                None => ": the base model is a masked language model".to_owned(),
            },
        }),
        _ => Ok(()),
    }
}

/// True if `module` is one that PEFT lists for any classifier.
pub(super) fn names_classifier(fields: &Map<String, Value>, module: &str) -> bool {
    let task = fields.get(TASK).and_then(Value::as_str);
    matches!(task, Some(SEQUENCE | TOKEN)) && CLASSIFIERS.contains(&module)
}
