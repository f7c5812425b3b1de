//! Sampling settings: the fields common to all requests for text.

use std::collections::BTreeMap;

use emberlm_generate::{ChooserConfig, Grammar, SETTINGS, SamplingDefaults, SamplingSetting};
use emberlm_tokenizer::StopStrings;
use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::body::{FieldGroup, take};
use super::error::ApiError;
use crate::limits::{MOST_BIASES, MOST_STOPS};

/// The fields. Null is as if a field were not there: then the model's own settings decide, and where it has none, the defaults of
/// OpenAI's API.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(transform = add_sampling)]
pub(crate) struct Settings {
    /// A field for each of [`SETTINGS`].
    #[serde(skip)]
    sampling: SamplingDefaults,
    /// Maximum number of tokens of the answer. Default: the model's `max_new_tokens`, otherwise 16 for completions and the
    /// rest of the context for conversations.
    #[schemars(range(min = 0, max = u32::MAX))]
    max_tokens: Option<u32>,
    /// Added to the logits of tokens, by token id.
    logit_bias: Option<BTreeMap<String, f32>>,
    /// The same seed gives the same text. Answer `i` of `n` draws from stream `i` of the seed. Default: random.
    #[schemars(range(min = i64::MIN, max = i64::MAX))]
    seed: Option<i64>,
    /// Texts that end the answer and are not part of it.
    stop: Option<Stop>,
    /// The form of the text, as in vLLM.
    structured_outputs: Option<StructuredOutputs>,
}

/// One text, or several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a text, or a list of texts")]
enum Stop {
    One(String),
    Many(#[schemars(length(max = MOST_STOPS))] Vec<String>),
}

/// The form of a text, given by one of these fields.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum StructuredOutputs {
    /// JSON that follows this schema.
    Json(BTreeMap<String, Value>),
    /// A text that a regular expression matches as a whole.
    Regex(String),
    /// One of these texts.
    Choice(#[schemars(length(min = 1))] Vec<String>),
}

impl FieldGroup for Settings {
    fn take(fields: &Value) -> Result<Self, ApiError> {
        let field = |setting: &SamplingSetting| {
            let value = fields.get(setting.name)?.clone();
            Some((setting.name.to_owned(), value))
        };
        let sampling: Map<String, Value> = SETTINGS.iter().filter_map(field).collect();
        Ok(Self {
            sampling: take(&Value::Object(sampling))?,
            ..take(fields)?
        })
    }
}

/// Adds [`SETTINGS`] before the other fields of a schema.
fn add_sampling(schema: &mut Schema) {
    let named = |setting: &SamplingSetting| (setting.name.to_owned(), property(setting));
    let mut properties: Map<String, Value> = SETTINGS.iter().map(named).collect();
    if let Some(Value::Object(others)) = schema.get_mut("properties") {
        properties.append(others);
        *others = properties;
    }
}

/// The schema of a setting. Its default has no effect.
fn property(setting: &SamplingSetting) -> Value {
    let range = setting.range;
    let (kind, format) = match range.is_whole {
        true => ("integer", "uint32"),
        false => ("number", "double"),
    };
    let least = match range.above_least {
        true => "exclusiveMinimum",
        false => "minimum",
    };
    let mut property = json!({
        "description": setting.description,
        "type": [kind, "null"],
        "format": format,
        "default": number((setting.applied)(&ChooserConfig::default())),
        least: number(range.least),
    });
    if range.most.is_finite() {
        property["maximum"] = number(range.most);
    }
    property
}

/// A number in JSON, without a fraction if it is whole.
fn number(value: f64) -> Value {
    match value.fract() == 0.0 {
        true => json!(value as i64),
        false => json!(value),
    }
}

impl Settings {
    /// The requested maximum of new tokens.
    pub fn max_tokens(&self) -> Option<usize> {
        self.max_tokens.map(|tokens| tokens as usize)
    }

    /// The sampler's configuration: the request's settings, with unset ones taken from `defaults`. `seed`
    /// applies if the request has none.
    ///
    /// # Errors
    /// A logit bias is invalid.
    pub fn chooser(
        &self,
        defaults: SamplingDefaults,
        seed: u64,
    ) -> Result<ChooserConfig, ApiError> {
        // Negative seeds are valid too; each number selects its own random stream.
        let seed = self.seed.map_or(seed, i64::cast_unsigned);
        Ok(ChooserConfig {
            logit_bias: self.logit_bias()?,
            ..self.sampling.or(defaults).chooser(seed)
        })
    }

    fn logit_bias(&self) -> Result<Vec<(u32, f32)>, ApiError> {
        let biases = self.logit_bias.iter().flatten();
        let refuse = |rule: &str| Err(ApiError::field("logit_bias", rule));
        if biases.clone().count() > MOST_BIASES {
            return refuse(&format!("must have at most {MOST_BIASES} tokens"));
        }
        let mut found = Vec::new();
        for (id, &value) in biases {
            match id.parse() {
                Ok(id) => found.push((id, value)),
                Err(_) => return refuse("its keys must be token ids, such as \"50256\""),
            }
        }
        Ok(found)
    }

    /// The stop strings of the request and those in `more`.
    ///
    /// # Errors
    /// There are too many, or one is empty or too long.
    pub fn stops(&self, more: &[String]) -> Result<StopStrings, ApiError> {
        let requested = match &self.stop {
            None => &[],
            Some(Stop::One(text)) => std::slice::from_ref(text),
            Some(Stop::Many(texts)) => &texts[..],
        };
        if requested.len() > MOST_STOPS {
            let rule = format!("must be at most {MOST_STOPS} texts");
            return Err(ApiError::field("stop", rule));
        }
        let all: Vec<&String> = requested.iter().chain(more).collect();
        Ok(StopStrings::new(&all)?)
    }

    /// The grammar of `structured_outputs`.
    ///
    /// # Errors
    /// The list of choices is empty.
    pub fn grammar(&self) -> Result<Option<Grammar>, ApiError> {
        Ok(match &self.structured_outputs {
            None => None,
            Some(StructuredOutputs::Json(schema)) => Some(json_grammar(Some(schema))?),
            Some(StructuredOutputs::Regex(pattern)) => Some(Grammar::Regex(pattern.clone())),
            Some(StructuredOutputs::Choice(texts)) if texts.is_empty() => {
                let rule = "must be at least one text";
                return Err(ApiError::field("structured_outputs.choice", rule));
            }
            Some(StructuredOutputs::Choice(texts)) => Some(Grammar::choice(texts)),
        })
    }
}

/// The grammar of JSON that matches `schema`, or of any object if there is none.
///
/// # Errors
/// The schema cannot be serialized.
pub(crate) fn json_grammar(schema: Option<&BTreeMap<String, Value>>) -> Result<Grammar, ApiError> {
    let text = match schema {
        Some(schema) => serde_json::to_string(schema),
        None => Ok(r#"{"type":"object"}"#.to_owned()),
    };
    let text = text.map_err(|error| ApiError::invalid(error.to_string()))?;
    Ok(Grammar::JsonSchema(text))
}
