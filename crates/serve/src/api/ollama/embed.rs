//! Embeddings: `/api/embed`, and the older `/api/embeddings` for one text.

use std::sync::LazyLock;
use std::time::Instant;

use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::models::without_tag;
use super::options::KeepAlive;
use crate::api::body::{FieldGroup, KnownFields};
use crate::api::embeddings::{ToEmbed, Vectors};
use crate::api::error::ApiError;
use crate::api::fields;
use crate::api::json::json;
use crate::api::model_request::ModelRequest;
use crate::api::prompt::Prompt;
use crate::model::Task;

/// The fields of a request for vectors.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaEmbed")]
pub(crate) struct Embed {
    /// The name or an alias of the model; `:latest` after it has no effect.
    model: String,
    /// A text, or a list of texts.
    input: Input,
    /// False to refuse texts that are longer than the model's context, instead of truncating them.
    #[schemars(extend("default" = true))]
    truncate: Option<bool>,
    /// The length of a vector: its first values, at most the model's width, normalized again.
    #[schemars(range(min = 1, max = u32::MAX))]
    dimensions: Option<u32>,
    /// Has no effect: models stay in memory until it is needed.
    #[allow(dead_code)]
    keep_alive: Option<KeepAlive>,
}

/// A text, or a list of texts.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a text, or a list of texts")]
#[schemars(rename = "OllamaInput")]
enum Input {
    Text(String),
    Texts(#[schemars(length(min = 1))] Vec<String>),
}

/// The fields of a request for one vector.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaEmbedOne")]
pub(crate) struct EmbedOne {
    /// The name or an alias of the model; `:latest` after it has no effect.
    model: String,
    /// A text. One that is longer than the model's context is truncated.
    prompt: String,
    /// Has no effect: models stay in memory until it is needed.
    #[allow(dead_code)]
    keep_alive: Option<KeepAlive>,
}

/// The vectors of texts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "OllamaEmbedded")]
pub(crate) struct Embedded {
    model: String,
    embeddings: Vec<Vec<f32>>,
    /// Nanoseconds from the request to the end.
    total_duration: u64,
    /// Always 0: a model that is loaded for a request counts as part of the other time.
    load_duration: u64,
    /// Tokens of the texts.
    prompt_eval_count: usize,
}

/// The vector of a text.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "OllamaEmbeddedOne")]
pub(crate) struct EmbeddedOne {
    embedding: Vec<f32>,
}

impl FieldGroup for Embed {}
impl FieldGroup for EmbedOne {}

static EMBED: LazyLock<KnownFields<(Embed,)>> =
    LazyLock::new(|| KnownFields::new(&fields::OLLAMA_EMBED));
static EMBED_ONE: LazyLock<KnownFields<(EmbedOne,)>> =
    LazyLock::new(|| KnownFields::new(&fields::OLLAMA_EMBED));

/// Handles a request for vectors.
pub(crate) async fn embed(mut request: ModelRequest) -> Result<Response, ApiError> {
    let start = Instant::now();
    let (fields,) = request.read(&EMBED).await?;
    let model = request.model(without_tag(&request.app, &fields.model), Task::Embedding)?;
    let to_embed = ToEmbed {
        field: "input",
        input: match fields.input {
            Input::Text(text) => Prompt::Text(text),
            Input::Texts(texts) => Prompt::Texts(texts),
        },
        truncates: fields.truncate != Some(false),
        dimensions: fields.dimensions,
    };
    let Vectors { vectors, tokens } = to_embed.embed(&mut request, &model).await?;
    let embedded = Embedded {
        model: model.name.clone(),
        embeddings: vectors,
        total_duration: u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
        load_duration: 0,
        prompt_eval_count: tokens,
    };
    json(&request.app, embedded, request.account).await
}

/// Handles a request for one vector.
pub(crate) async fn embed_one(mut request: ModelRequest) -> Result<Response, ApiError> {
    let (fields,) = request.read(&EMBED_ONE).await?;
    let model = request.model(without_tag(&request.app, &fields.model), Task::Embedding)?;
    let to_embed = ToEmbed {
        field: "prompt",
        input: Prompt::Text(fields.prompt),
        truncates: true,
        dimensions: None,
    };
    let Vectors { mut vectors, .. } = to_embed.embed(&mut request, &model).await?;
    let embedded = EmbeddedOne {
        embedding: vectors.pop().unwrap_or_default(),
    };
    json(&request.app, embedded, request.account).await
}
