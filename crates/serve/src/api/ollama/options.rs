//! Settings of the generation, the form of the text, and reasoning.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::{Map, Value, json};

use crate::api::body::{KnownFields, Object};
use crate::api::conversation::TemplateOptions;
use crate::api::error::ApiError;
use crate::api::fields;
use crate::api::settings::{Settings, TextForm, json_grammar};

/// Settings of the generation: those of other endpoints, some under other names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options(pub Settings);

/// The names of options and of the settings that they stand for.
const RENAMED: [(&str, &str); 2] = [
    ("num_predict", "n_predict"),
    ("repeat_penalty", "repetition_penalty"),
];

/// The value of `num_predict` that fills the context, as any answer may here.
const TO_FILL: i64 = -2;

static SETTINGS: LazyLock<KnownFields<(Settings,)>> =
    LazyLock::new(|| KnownFields::new(&fields::NONE));

impl<'de> Deserialize<'de> for Options {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut options = Object::<Map<String, Value>>::deserialize(deserializer)?.0;
        for (option, setting) in RENAMED {
            if options.contains_key(setting) {
                let rule =
                    format!("{setting}: this field is not supported; did you mean {option}?");
                return Err(Error::custom(rule));
            }
            if let Some(value) = options.shift_remove(option) {
                let value = if value == TO_FILL { json!(-1) } else { value };
                options.insert(setting.to_owned(), value);
            }
        }
        let settings = SETTINGS.take(&Value::Object(options));
        let (settings,) = settings.map_err(|error| Error::custom(error.message()))?;
        Ok(Self(settings))
    }
}

impl JsonSchema for Options {
    fn schema_name() -> Cow<'static, str> {
        "OllamaOptions".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Settings::json_schema(generator);
        schema.insert("additionalProperties".to_owned(), false.into());
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            for (option, setting) in RENAMED {
                let mut property = properties.shift_remove(setting).unwrap_or_default();
                property["description"] =
                    format!("The same as `{setting}` of other endpoints.").into();
                if option == "num_predict" {
                    property["minimum"] = TO_FILL.into();
                }
                properties.insert(option.to_owned(), property);
            }
        }
        schema
    }
}

/// Renames the field of an error from shared code to this API's field.
pub(super) fn renamed(error: ApiError) -> ApiError {
    error.renamed(|field| match field {
        "response_format" => Some("format".to_owned()),
        "max_tokens" => Some("options.num_predict".to_owned()),
        field => {
            let option = RENAMED.iter().find(|(_, setting)| *setting == field);
            let option = option.map_or(field, |(option, _)| *option);
            SETTINGS.has(field).then(|| format!("options.{option}"))
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

/// The amount of reasoning.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "true, false, or an effort such as \"low\"")]
#[schemars(rename = "OllamaThink")]
pub(crate) enum Think {
    /// True for some, false for none.
    Switch(bool),
    /// An effort such as `low`.
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
