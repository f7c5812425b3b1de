//! A model as it is written in `serve.toml` and sent to the administrator's API.

use std::num::NonZero;
use std::path::PathBuf;

use emberlm_generate::{EngineConfig, SETTINGS, SamplingDefaults};
use emberlm_kernels::Precision;
use emberlm_model::{CacheFormat, WeightFormat};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value, json};

/// A model to serve: a `[[model]]` table of `serve.toml`, or the body of `POST /admin/models`. A setting that is left out is
/// that of the command line.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelEntry {
    /// The model's directory or GGUF file, relative to the server's working directory, or a name on the Hugging Face Hub.
    #[schemars(length(max = MOST_PATH))]
    pub path: PathBuf,
    /// The name that clients use. Default: that of the directory.
    #[schemars(length(max = MOST_NAME))]
    pub name: Option<String>,
    /// Other names that clients may use.
    #[serde(default)]
    #[schemars(length(max = MOST_ALIASES), inner(length(max = MOST_NAME)))]
    pub aliases: Vec<String>,
    /// True for a run whose newest checkpoint is served.
    #[serde(default)]
    pub follow: bool,
    /// The format of the weights. Default: as they are stored.
    #[serde(default, deserialize_with = "weights")]
    #[schemars(schema_with = "weights_schema")]
    pub weights: Option<WeightFormat>,
    /// The precision of products in floating-point numbers.
    #[serde(default, deserialize_with = "precision")]
    #[schemars(schema_with = "precision_schema")]
    pub precision: Option<Precision>,
    /// The format of the key-value caches.
    #[serde(default, deserialize_with = "cache")]
    #[schemars(schema_with = "cache_schema")]
    pub cache: Option<CacheFormat>,
    /// Tokens of a prompt and its answer.
    #[schemars(range(max = u32::MAX))]
    pub context: Option<NonZero<usize>>,
    /// Answers that are generated at the same time.
    #[schemars(range(max = u32::MAX))]
    pub slots: Option<NonZero<usize>>,
    /// Requests that may wait for slots.
    #[schemars(range(max = u32::MAX))]
    pub max_queue: Option<usize>,
    /// The chat template: `chatml`, `llama3`, or a template's path.
    #[schemars(length(max = MOST_PATH))]
    pub chat_template: Option<String>,
    /// True to compute each answer in separate passes.
    pub deterministic: Option<bool>,
    /// A smaller model that drafts tokens, as a path like that of the model.
    #[schemars(length(max = MOST_PATH))]
    pub draft: Option<PathBuf>,
    /// Draft tokens per pass.
    #[serde(default, deserialize_with = "draft_tokens")]
    #[schemars(range(max = EngineConfig::MOST_DRAFT_TOKENS))]
    pub draft_tokens: Option<usize>,
    /// The values of sampling settings that a request leaves out.
    #[serde(default)]
    #[schemars(schema_with = "sampling_schema", extend("default" = {}))]
    pub sampling: SamplingDefaults,
}

/// Maximum length of a name in bytes.
pub(crate) const MOST_NAME: usize = 256;
/// Maximum number of aliases of a model.
pub(crate) const MOST_ALIASES: usize = 64;
/// Maximum length of a path in bytes.
pub(crate) const MOST_PATH: usize = 4096;

fn weights<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<WeightFormat>, D::Error> {
    named(deserializer, WeightFormat::ALL, WeightFormat::name)
}

fn precision<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Precision>, D::Error> {
    named(deserializer, Precision::ALL, Precision::name)
}

fn cache<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<CacheFormat>, D::Error> {
    named(deserializer, CacheFormat::ALL, CacheFormat::name)
}

fn draft_tokens<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    let tokens = usize::deserialize(deserializer)?;
    let most = EngineConfig::MOST_DRAFT_TOKENS;
    match tokens > most {
        true => Err(de::Error::custom(format!(
            "must be at most {most} (got {tokens})"
        ))),
        false => Ok(Some(tokens)),
    }
}

/// Reads the name of one of `all`.
fn named<'de, D: Deserializer<'de>, T: Copy, const N: usize>(
    deserializer: D,
    all: [T; N],
    name: fn(T) -> &'static str,
) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let found = all.into_iter().find(|&one| name(one) == text);
    found.map(Some).ok_or_else(|| {
        let names = all.map(name).join(", ");
        de::Error::custom(format!("must be one of {names} (got {text:?})"))
    })
}

fn weights_schema(_: &mut SchemaGenerator) -> Schema {
    names_schema(WeightFormat::ALL.map(WeightFormat::name))
}

fn precision_schema(_: &mut SchemaGenerator) -> Schema {
    names_schema(Precision::ALL.map(Precision::name))
}

fn cache_schema(_: &mut SchemaGenerator) -> Schema {
    names_schema(CacheFormat::ALL.map(CacheFormat::name))
}

fn names_schema<const N: usize>(names: [&str; N]) -> Schema {
    let names = names.map(Value::from).into_iter().chain([Value::Null]);
    schema(json!({ "type": ["string", "null"], "enum": names.collect::<Vec<_>>() }))
}

fn sampling_schema(_: &mut SchemaGenerator) -> Schema {
    let number = |text: &str| json!({ "description": text, "type": ["number", "null"] });
    let settings = SETTINGS
        .iter()
        .map(|setting| (setting.name.to_owned(), number(setting.description)));
    let mut properties: Map<String, Value> = settings.collect();
    let tokens = number("The maximum number of new tokens.");
    properties.insert("max_new_tokens".to_owned(), tokens);
    schema(
        json!({ "type": ["object", "null"], "properties": properties, "additionalProperties": false }),
    )
}

/// The schema that an object describes.
fn schema(value: Value) -> Schema {
    Schema::try_from(value).unwrap_or_default()
}
