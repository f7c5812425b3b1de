//! Text models that are a part of a model for images and text.
//!
//! The `config.json` of such a directory has the fields of its text model in `text_config`, and the weights have the tensors of
//! all parts. For text without images, the result of the whole model is that of its text model, which is the only part that is read.

use serde_json::{Map, Value};

use crate::error::HuggingFaceError;
use crate::exchange::fields::Fields;
use crate::families::Family;

/// The field with the fields of the text model.
const PART: &str = "text_config";

/// The field that says whether the head is the embedding. That of the whole model has precedence.
const TIED: &str = "tie_word_embeddings";

/// Fields that also apply to the text model if only the whole model has them.
const SHARED: [&str; 5] = [
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "pad_token_id",
    "quantization_config",
];

/// Prefixes of the text model's tensors in the files, and those that they have in a directory of it. The second and third are of files that
/// `transformers` wrote before 4.52.
const PREFIXES: [(&str, &str); 4] = [
    ("model.language_model.", "model."),
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
    ("lm_head.", "lm_head."),
];

/// The fields of the text model in those of a `config.json`; `None` if they describe no model with parts.
///
/// # Errors
/// The text model has another type than those that are supported.
pub(super) fn fields(
    whole: &Map<String, Value>,
) -> Result<Option<Map<String, Value>>, HuggingFaceError> {
    let types = types(whole);
    let Some(&first) = types.first() else {
        return Ok(None);
    };
    let known = Fields::new(whole);
    let Some(Value::Object(part)) = whole.get(PART) else {
        return Err(known.error(PART, "must be an object"));
    };
    let mut text = part.clone();
    for name in SHARED {
        if let Some(value) = whole.get(name) {
            text.entry(name).or_insert_with(|| value.clone());
        }
    }
    if let Some(tied) = whole.get(TIED) {
        text.insert(TIED.to_owned(), tied.clone());
    }
    let own = text.entry("model_type").or_insert_with(|| first.into());
    if !own.as_str().is_some_and(|own| types.contains(&own)) {
        let rule = format!("must be one of {}", types.join(", "));
        let part = known.object(PART)?;
        return Err(part.unwrap_or(known).error("model_type", rule));
    }
    Ok(Some(text))
}

/// The types that the text model of a model may have: those of the families that are within its type.
fn types(whole: &Map<String, Value>) -> Vec<&'static str> {
    let Some(name) = whole.get("model_type").and_then(Value::as_str) else {
        return Vec::new();
    };
    let known = Family::ALL.into_iter().filter_map(Family::of_transformers);
    let within = known.filter(|own| own.within().contains(&name));
    within.map(|own| own.name()).collect()
}

/// The name of a tensor of the text model in a directory of only that model; `None` for a tensor of another part.
pub(super) fn name(in_files: &str) -> Option<String> {
    PREFIXES.iter().find_map(|(prefix, own)| {
        let rest = in_files.strip_prefix(prefix)?;
        Some(format!("{own}{rest}"))
    })
}

/// Sets the field about the head by the tensors in a directory, as `transformers` does: its classes have other defaults than some
/// published files were written with.
pub(super) fn set_tied<'a>(
    text: &mut Map<String, Value>,
    mut in_files: impl Iterator<Item = &'a str>,
) {
    let has_head = in_files.any(|of| name(of).is_some_and(|of| of.starts_with("lm_head.")));
    text.insert(TIED.to_owned(), Value::Bool(!has_head));
}

/// The warning about the parts that are not read.
pub(super) fn warning(whole: &Map<String, Value>) -> String {
    let name = whole.get("model_type").and_then(Value::as_str);
    format!(
        "config.json: `model_type` = \"{}\": only the text model of this model for images and text is read",
        name.unwrap_or_default()
    )
}
