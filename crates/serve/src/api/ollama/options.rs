//! Settings of the generation, the form of the text, and reasoning.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::body::FieldGroup;
use crate::api::conversation::TemplateOptions;
use crate::api::error::ApiError;
use crate::api::settings::{Settings, TextForm, json_grammar};
use crate::limits::MOST_STOPS;

/// Settings of the generation.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "OllamaOptions")]
pub(crate) struct Options {
    /// The temperature of the sampling.
    #[schemars(range(min = 0.0))]
    temperature: Option<f64>,
    /// The number of most probable tokens to sample from; 0 for all.
    #[schemars(range(min = 0, max = u32::MAX))]
    top_k: Option<u32>,
    /// The probability of the most probable tokens to sample from.
    #[schemars(range(min = 0.0, max = 1.0))]
    top_p: Option<f64>,
    /// The least probability of a token, relative to the most probable one.
    #[schemars(range(min = 0.0, max = 1.0))]
    min_p: Option<f64>,
    /// The factor by which the logits of tokens that have occurred are reduced. It counts the whole text.
    #[schemars(range(min = 0.0))]
    repeat_penalty: Option<f64>,
    /// Subtracted from the logits of tokens that have occurred.
    #[schemars(range(min = -2.0, max = 2.0))]
    presence_penalty: Option<f64>,
    /// Subtracted from the logits of tokens for each time that they have occurred.
    #[schemars(range(min = -2.0, max = 2.0))]
    frequency_penalty: Option<f64>,
    /// The same seed gives the same text.
    #[schemars(range(min = i64::MIN, max = i64::MAX))]
    seed: Option<i64>,
    /// Maximum number of tokens of the answer; -1 and -2 for the rest of the context.
    #[schemars(range(min = -2, max = u32::MAX))]
    num_predict: Option<i64>,
    /// Texts that end the answer and are not part of it.
    #[schemars(length(max = MOST_STOPS))]
    stop: Option<Vec<String>>,
}

/// The names of options and of the settings that they stand for.
const NAMES: [(&str, &str); 10] = [
    ("temperature", "temperature"),
    ("top_k", "top_k"),
    ("top_p", "top_p"),
    ("min_p", "min_p"),
    ("repeat_penalty", "repetition_penalty"),
    ("presence_penalty", "presence_penalty"),
    ("frequency_penalty", "frequency_penalty"),
    ("seed", "seed"),
    ("num_predict", "n_predict"),
    ("stop", "stop"),
];

impl Options {
    /// The settings.
    ///
    /// # Errors
    /// A value is out of its range.
    pub fn settings(&self) -> Result<Settings, ApiError> {
        let settings = json!({
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "min_p": self.min_p,
            "repetition_penalty": self.repeat_penalty,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "seed": self.seed,
            // The context is filled in any case.
            "n_predict": self.num_predict.map(|tokens| if tokens == -2 { -1 } else { tokens }),
            "stop": self.stop,
        });
        Settings::take(&settings).map_err(renamed)
    }
}

/// Renames the field of an error from shared code to this API's field.
pub(super) fn renamed(error: ApiError) -> ApiError {
    error.renamed(|field| match field {
        "response_format" => Some("format".to_owned()),
        "max_tokens" => Some("options.num_predict".to_owned()),
        field => {
            let (option, _) = NAMES.iter().find(|(_, setting)| *setting == field)?;
            Some(format!("options.{option}"))
        }
    })
}

/// The form of the text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "\"json\", or a JSON schema")]
#[schemars(rename = "OllamaFormat")]
pub(crate) enum Format {
    /// Any JSON object, or any text if it is empty.
    Name(FormatName),
    /// JSON that follows a schema.
    Schema(BTreeMap<String, Value>),
}

/// The name of a form.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaFormatName")]
pub(crate) enum FormatName {
    /// Any JSON object.
    #[serde(rename = "json")]
    Json,
    /// Any text.
    #[serde(rename = "")]
    Text,
}

impl Format {
    /// The form; `None` for any text.
    ///
    /// # Errors
    /// See [`json_grammar`].
    pub fn form(&self) -> Result<Option<TextForm>, ApiError> {
        let schema = match self {
            Self::Name(FormatName::Text) => return Ok(None),
            Self::Name(FormatName::Json) => None,
            Self::Schema(schema) => Some(schema),
        };
        Ok(Some(TextForm {
            field: "format",
            grammar: json_grammar(schema)?,
        }))
    }
}

/// A time.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a number of seconds, or a text such as \"5m\"")]
#[schemars(rename = "OllamaKeepAlive")]
pub(crate) enum KeepAlive {
    /// Seconds.
    Seconds(#[allow(dead_code)] f64),
    /// A text such as `5m`.
    Text(#[allow(dead_code)] String),
}

/// Whether or how much the model reasons.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "true, false, or an effort such as \"low\"")]
#[schemars(rename = "OllamaThink")]
pub(crate) enum Think {
    /// Whether it does.
    Switch(bool),
    /// How much.
    Effort(String),
}

impl Think {
    /// Sets the variables of the template.
    pub fn apply(&self, template: &mut TemplateOptions) {
        match self {
            Self::Switch(reasons) => template.set_reasoning(*reasons),
            Self::Effort(effort) => template.set_effort(effort.clone()),
        }
    }

    /// Returns true if the answer has no reasoning.
    pub fn is_off(&self) -> bool {
        matches!(self, Self::Switch(false))
    }
}
