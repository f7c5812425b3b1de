//! Sampling settings: the fields common to all requests for text.

use std::collections::BTreeMap;

use emberlm_generate::{ChooserConfig, Grammar, SETTINGS, SamplingDefaults, SamplingSetting};
use emberlm_tokenizer::StopStrings;
use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::body::{FieldGroup, take};
use super::error::ApiError;
use crate::limits::{MOST_BIASES, MOST_STOP_TOKENS, MOST_STOPS};

/// A form of the answer's text, from one field of a request such as `response_format`.
pub(crate) struct TextForm {
    /// The field's name.
    pub field: &'static str,
    pub grammar: Grammar,
}

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
    /// The same as `max_tokens`, which takes precedence, as in llama.cpp; -1 for the maximum of conversations.
    #[schemars(range(min = UNLIMITED, max = u32::MAX))]
    n_predict: Option<i64>,
    /// Minimum number of tokens before a token that ends the text, as in vLLM. A stop text, and a form that allows nothing
    /// more, end the text earlier.
    #[schemars(range(min = 0, max = u32::MAX), extend("default" = 0))]
    min_tokens: Option<u32>,
    /// True to exclude the tokens by which the model ends its answers: the text ends at `max_tokens`, a stop text or one of
    /// `stop_token_ids`.
    #[schemars(extend("default" = false))]
    ignore_eos: Option<bool>,
    /// Token ids that end the answer and are not part of it, in addition to the model's.
    #[schemars(length(max = MOST_STOP_TOKENS), inner(range(max = u32::MAX)))]
    stop_token_ids: Option<Vec<u32>>,
    /// Added to the logits of tokens, by token id.
    logit_bias: Option<BTreeMap<String, f32>>,
    /// The same seed gives the same text. Answer `i` of `n` draws from stream `i` of the seed. Default: random.
    #[schemars(range(min = i64::MIN, max = i64::MAX))]
    seed: Option<i64>,
    /// Texts that end the answer and are not part of it.
    stop: Option<Stop>,
    /// The form of the text, as in vLLM.
    structured_outputs: Option<StructuredOutputs>,
    /// The same as `structured_outputs` with `json`, as in earlier versions of vLLM: a schema, as an object or as text.
    guided_json: Option<GuidedJson>,
    /// The same as `structured_outputs` with `regex`.
    guided_regex: Option<String>,
    /// The same as `structured_outputs` with `choice`.
    #[schemars(length(min = 1))]
    guided_choice: Option<Vec<String>>,
    /// The same as `structured_outputs` with `json`, as in llama.cpp.
    json_schema: Option<BTreeMap<String, Value>>,
}

/// The value of `n_predict` without a limit.
const UNLIMITED: i64 = -1;

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

/// A schema.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a JSON schema, as an object or as text")]
enum GuidedJson {
    Schema(BTreeMap<String, Value>),
    Text(String),
}

impl FieldGroup for Settings {
    fn take(fields: &Value) -> Result<Self, ApiError> {
        let field = |setting: &SamplingSetting| {
            let value = match fields.get(setting.name)? {
                value if setting.name == TOP_K && *value == ALL_TOKENS => 0.into(),
                value => value.clone(),
            };
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

/// The setting that vLLM also accepts with the value [`ALL_TOKENS`], instead of 0.
const TOP_K: &str = "top_k";
const ALL_TOKENS: i64 = -1;

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
    let (least_value, format) = match setting.name == TOP_K {
        true => (ALL_TOKENS as f64, "int64"),
        false => (range.least, format),
    };
    let mut property = json!({
        "description": setting.description,
        "type": [kind, "null"],
        "format": format,
        "default": number((setting.applied)(&ChooserConfig::default())),
        least: number(least_value),
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
    ///
    /// # Errors
    /// `n_predict` is out of its range.
    pub fn max_tokens(&self) -> Result<Option<usize>, ApiError> {
        let predicted = match self.n_predict {
            None | Some(UNLIMITED) => None,
            Some(tokens) => Some(u32::try_from(tokens).map_err(|_| {
                let rule = format!("must be between {UNLIMITED} and {}", u32::MAX);
                ApiError::field("n_predict", rule)
            })?),
        };
        let tokens = self.max_tokens.or(predicted);
        Ok(tokens.map(|tokens| tokens as usize))
    }

    /// Returns true if the request asks for the maximum of conversations.
    pub fn is_unlimited(&self) -> bool {
        self.max_tokens.is_none() && self.n_predict == Some(UNLIMITED)
    }

    /// The ids of the request that end an answer.
    ///
    /// # Errors
    /// There are too many.
    pub fn stop_tokens(&self) -> Result<&[u32], ApiError> {
        let ids = self.stop_token_ids.as_deref().unwrap_or_default();
        match ids.len() > MOST_STOP_TOKENS {
            true => {
                let rule = format!("must be at most {MOST_STOP_TOKENS} ids");
                Err(ApiError::field("stop_token_ids", rule))
            }
            false => Ok(ids),
        }
    }

    /// Returns true if the model may not end its answers.
    pub fn ignores_ends(&self) -> bool {
        self.ignore_eos == Some(true)
    }

    /// The tokens that are not chosen at first: `ends`, by which the model ends an answer, and those of the request.
    ///
    /// # Errors
    /// See [`Self::stop_tokens`].
    pub fn delayed(&self, ends: &[u32]) -> Result<Vec<(u32, usize)>, ApiError> {
        let least = self.min_tokens.map_or(0, |tokens| tokens as usize);
        let end = if self.ignores_ends() {
            usize::MAX
        } else {
            least
        };
        let stops = self.stop_tokens()?;
        let ends = ends.iter().filter(|id| !stops.contains(id));
        let ends = ends.map(|&id| (id, end));
        let stops = stops.iter().map(|&id| (id, least));
        Ok(ends.chain(stops).filter(|(_, first)| *first > 0).collect())
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

    /// Adds stop strings before the others.
    pub fn add_stops(&mut self, mut texts: Vec<String>) {
        match self.stop.take() {
            None => {}
            Some(Stop::One(text)) => texts.push(text),
            Some(Stop::Many(more)) => texts.extend(more),
        }
        self.stop = Some(Stop::Many(texts));
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

    /// The form of the text, if a field has one.
    ///
    /// # Errors
    /// Several fields have one, or a list of choices is empty.
    pub fn form(&self) -> Result<Option<TextForm>, ApiError> {
        let structured = self
            .structured_outputs
            .as_ref()
            .map(StructuredOutputs::form);
        let guided = self.guided_json.as_ref().map(|schema| match schema {
            GuidedJson::Schema(schema) => json_grammar(Some(schema)),
            GuidedJson::Text(schema) => Ok(Grammar::JsonSchema(schema.clone())),
        });
        let regex = self.guided_regex.clone().map(Grammar::Regex).map(Ok);
        let texts = self.guided_choice.as_deref();
        let one_of = texts.map(|texts| choice("guided_choice", texts));
        let schema = self.json_schema.as_ref();
        let schema = schema.map(|schema| json_grammar(Some(schema)));
        let forms = [
            ("structured_outputs", structured),
            ("guided_json", guided),
            ("guided_regex", regex),
            ("guided_choice", one_of),
            ("json_schema", schema),
        ];
        let mut forms = forms
            .into_iter()
            .filter_map(|(field, grammar)| Some((field, grammar?)));
        let Some((field, grammar)) = forms.next() else {
            return Ok(None);
        };
        match forms.next() {
            Some((other, _)) => {
                let rule = format!("cannot be combined with {other}");
                Err(ApiError::field(field, rule))
            }
            None => Ok(Some(TextForm {
                field,
                grammar: grammar?,
            })),
        }
    }
}

impl StructuredOutputs {
    fn form(&self) -> Result<Grammar, ApiError> {
        match self {
            Self::Json(schema) => json_grammar(Some(schema)),
            Self::Regex(pattern) => Ok(Grammar::Regex(pattern.clone())),
            Self::Choice(texts) => choice("structured_outputs.choice", texts),
        }
    }
}

/// The grammar of one of several texts.
fn choice(field: &str, texts: &[String]) -> Result<Grammar, ApiError> {
    match texts.is_empty() {
        true => Err(ApiError::field(field, "must be at least one text")),
        false => Ok(Grammar::choice(texts)),
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
