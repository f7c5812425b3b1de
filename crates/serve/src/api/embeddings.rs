//! `POST /v1/embeddings`: text embeddings.

use std::sync::{Arc, LazyLock};

use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::body::{FieldGroup, KnownFields};
use super::bounds::PROMPT_TOKEN;
use super::error::ApiError;
use super::fields;
use super::json::json;
use super::model_request::ModelRequest;
use super::prompt::Prompt;
use super::text_outputs::{NUMBER, TextUsage, outputs};
use crate::model::{ServedModel, Task};

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
    /// The length of a vector, at most the model's width, which is the default. A shorter vector has the first values,
    /// normalized again if the model's vectors are normalized: useful for models that are trained for it (Matryoshka).
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
    usage: TextUsage,
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

impl FieldGroup for Embeddings {}

static FIELDS: LazyLock<KnownFields<(Embeddings,)>> =
    LazyLock::new(|| KnownFields::new(&fields::EMBEDDINGS));

/// Handles the request.
pub(crate) async fn answer(mut request: ModelRequest) -> Result<Response, ApiError> {
    let (fields,) = request.read(&FIELDS).await?;
    let model = request.model(&fields.model, Task::Embedding)?;
    let to_embed = ToEmbed {
        field: "input",
        input: fields.input,
        truncates: fields.truncate == Some(true),
        dimensions: fields.dimensions,
    };
    let Vectors { vectors, tokens } = to_embed.embed(&mut request, &model).await?;
    let data = vectors.into_iter().enumerate();
    let data = data.map(|(index, vector)| Embedding {
        object: "embedding",
        index,
        embedding: Vector::new(vector, fields.encoding_format),
    });
    let embedded = Embedded {
        object: "list",
        data: data.collect(),
        model: model.name.clone(),
        usage: TextUsage::new(tokens),
    };
    json(&request.app, embedded, request.account).await
}

/// Texts to embed, from a request of any API.
pub(crate) struct ToEmbed {
    /// The field of the texts, for errors.
    pub field: &'static str,
    pub input: Prompt,
    /// True to truncate texts that are longer than the context.
    pub truncates: bool,
    /// The length of a vector. Default: the model's width.
    pub dimensions: Option<u32>,
}

/// The vectors of texts.
pub(crate) struct Vectors {
    /// `[texts][dimensions]`.
    pub vectors: Vec<Vec<f32>>,
    /// The number of tokens of all texts.
    pub tokens: usize,
}

impl ToEmbed {
    /// Computes the vectors. Their memory is added to the request's account first.
    ///
    /// # Errors
    /// The number of dimensions is out of its range, a text cannot be embedded, or there is no memory.
    pub async fn embed(
        self,
        request: &mut ModelRequest,
        model: &Arc<ServedModel>,
    ) -> Result<Vectors, ApiError> {
        let width = model.worker.sizes().d_model;
        let dimensions = self.dimensions.map(|dimensions| dimensions as usize);
        if dimensions.is_some_and(|dimensions| !(1..=width).contains(&dimensions)) {
            let rule = format!("must be between 1 and {width}, this model's width");
            return Err(ApiError::field("dimensions", rule));
        }
        let Self {
            field,
            input,
            truncates,
            ..
        } = self;
        let texts = input.truncated_tokens(field, model, &request.app, truncates);
        let texts = texts.await?;
        let tokens = texts.iter().map(Vec::len).sum();
        request.trace.add_prompt(tokens);
        let count = texts.len();
        request
            .account
            .add(tokens * PROMPT_TOKEN + count * width * NUMBER)?;
        let ticket = model.worker.submit_embedding(texts).await;
        let outputs = outputs(ticket, count, field, &request.trace).await?;
        let vectors = outputs.into_iter();
        let vectors = vectors.map(|output| model.embedding(output, dimensions));
        Ok(Vectors {
            vectors: vectors.collect(),
            tokens,
        })
    }
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
