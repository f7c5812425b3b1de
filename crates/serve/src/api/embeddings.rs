//! `POST /v1/embeddings`: text embeddings.

use std::sync::LazyLock;

use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use emberlm_generate::EventKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::body::{FieldGroup, KnownFields};
use super::bounds::PROMPT_TOKEN;
use super::error::ApiError;
use super::fields;
use super::json::json;
use super::model_request::ModelRequest;
use super::prompt::{Prompt, TooLong};
use crate::model::Task;

/// Bytes reserved per vector element: its sum, its value and its text.
const NUMBER: usize = 64;

/// A request.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct Embeddings {
    /// The name or an alias of the model.
    model: String,
    /// The texts or tokens to embed. An encoder's special tokens are added to texts; tokens are used as they are.
    input: Prompt,
    /// The encoding of a vector: numbers, or the base64 encoding of their bytes (f32, little-endian).
    #[schemars(extend("default" = "float"))]
    encoding_format: Option<Encoding>,
    /// The length of a vector; must equal the model's width, which is the default.
    #[schemars(range(min = 1, max = u32::MAX))]
    dimensions: Option<u32>,
    /// Truncate texts and tokens that are longer than the model's context, as `emberlm embed` and sentence-transformers
    /// do. Without it, they are an error.
    #[schemars(extend("default" = false))]
    truncate: Option<bool>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Encoding {
    Float,
    Base64,
}

/// The vectors.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Embedded {
    object: &'static str,
    data: Vec<Embedding>,
    model: String,
    usage: Usage,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Embedding {
    object: &'static str,
    index: usize,
    embedding: Vector,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum Vector {
    Float(Vec<f32>),
    Base64(String),
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
}

impl FieldGroup for Embeddings {}

static FIELDS: LazyLock<KnownFields<(Embeddings,)>> =
    LazyLock::new(|| KnownFields::new(&fields::EMBEDDINGS));

/// Handles the request.
pub(crate) async fn answer(mut request: ModelRequest) -> Result<Response, ApiError> {
    let (fields,) = request.read(&FIELDS).await?;
    let model = request.model(&fields.model, Task::Embedding)?;
    let ModelRequest {
        app,
        trace,
        mut account,
        ..
    } = request;
    let width = model.worker.sizes().d_model;
    if fields
        .dimensions
        .is_some_and(|dimensions| dimensions as usize != width)
    {
        let rule = format!("must be {width}, this model's width, or left out");
        return Err(ApiError::field("dimensions", rule));
    }
    let is_text = fields.input.is_text();
    let too_long = match fields.truncate {
        Some(true) => TooLong::Truncated,
        _ => TooLong::Refused,
    };
    let texts = fields.input.tokens("input", &model, &app, too_long);
    let mut texts = texts.await?;
    if fields.truncate == Some(true) {
        texts
            .iter_mut()
            .for_each(|ids| model.truncate(ids, is_text));
    }
    let prompt_tokens = texts.iter().map(Vec::len).sum();
    trace.add_prompt(prompt_tokens);
    let bytes = prompt_tokens * PROMPT_TOKEN + texts.len() * width * NUMBER;
    account.add(bytes)?;
    let mut vectors: Vec<Option<Vector>> = texts.iter().map(|_| None).collect();
    let invalid = |error: ApiError| error.at("input");
    let ticket = model.worker.submit_embedding(texts).await;
    let mut ticket = ticket.map_err(|error| invalid(error.into()))?;
    let mut left = vectors.len();
    while left > 0 {
        match ticket.next().await {
            Some((text, EventKind::Embedded(output))) => {
                if let Some(vector) = vectors.get_mut(text) {
                    let embedding = model.embedding(output);
                    *vector = Some(Vector::new(embedding, fields.encoding_format));
                }
                left -= 1;
            }
            Some((_, EventKind::Started)) => trace.started(),
            Some((_, EventKind::Failed(error))) => return Err(invalid(error.into())),
            Some((_, EventKind::Prompt(_) | EventKind::Token(_) | EventKind::Finished(_))) => {}
            None => return Err(ticket.failure().into()),
        }
    }
    let data = vectors.into_iter().flatten().enumerate();
    let data = data.map(|(index, embedding)| Embedding {
        object: "embedding",
        index,
        embedding,
    });
    let embedded = Embedded {
        object: "list",
        data: data.collect(),
        model: model.name.clone(),
        usage: Usage {
            prompt_tokens,
            total_tokens: prompt_tokens,
        },
    };
    json(&app, embedded, account).await
}

impl Vector {
    fn new(vector: Vec<f32>, encoding: Option<Encoding>) -> Self {
        match encoding {
            None | Some(Encoding::Float) => Self::Float(vector),
            Some(Encoding::Base64) => {
                let bytes = vector.into_iter().flat_map(f32::to_le_bytes);
                Self::Base64(STANDARD.encode(bytes.collect::<Vec<u8>>()))
            }
        }
    }
}
