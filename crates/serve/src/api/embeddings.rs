//! `POST /v1/embeddings`: texts as vectors.

use axum::Json;
use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::App;
use super::body::{Body, Fields, schema};
use super::error::ApiError;
use super::prompt::Prompt;

/// A request.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct Embeddings {
    /// The model's name.
    model: String,
    /// What becomes vectors.
    input: Prompt,
    /// How a vector is written: as numbers, or as their bytes (f32, little end first) in base64.
    encoding_format: Option<Encoding>,
    /// How long a vector is: the model's width, no other.
    #[schemars(range(min = 1, max = u32::MAX))]
    dimensions: Option<u32>,
    /// Has no effect.
    #[allow(dead_code)]
    user: Option<String>,
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

/// Which fields these requests may have.
pub(crate) fn schemas() -> [Value; 1] {
    [schema::<Embeddings>()]
}

/// Answers.
pub(crate) async fn answer(
    State(app): State<App>,
    Body(body): Body,
) -> Result<Json<Embedded>, ApiError> {
    let fields = Fields::new(&body)?;
    let asked: Embeddings = fields.take()?;
    fields.check_known(&app.schemas().embeddings)?;
    let model = app.model(&asked.model)?;
    let width = model.worker.model().d_model;
    if asked
        .dimensions
        .is_some_and(|dimensions| dimensions as usize != width)
    {
        let rule = format!("must be {width}, this model's width, or left out");
        return Err(ApiError::field("dimensions", rule));
    }
    let texts = asked.input.tokens("input", &model, app.limits()).await?;
    let (mut data, mut prompt_tokens) = (Vec::new(), 0);
    for (index, tokens) in texts.into_iter().enumerate() {
        prompt_tokens += tokens.len();
        let mean = model.worker.embed(tokens).await;
        let mean = mean.map_err(|error| ApiError::from(error).at("input"))?;
        let vector = unit(&mean);
        data.push(Embedding {
            object: "embedding",
            index,
            embedding: match asked.encoding_format {
                None | Some(Encoding::Float) => Vector::Float(vector),
                Some(Encoding::Base64) => {
                    let bytes = vector.into_iter().flat_map(f32::to_le_bytes);
                    Vector::Base64(STANDARD.encode(bytes.collect::<Vec<u8>>()))
                }
            },
        });
    }
    Ok(Json(Embedded {
        object: "list",
        data,
        model: model.name.clone(),
        usage: Usage {
            prompt_tokens,
            total_tokens: prompt_tokens,
        },
    }))
}

/// The vector of length 1 in the same direction, as OpenAI's are.
fn unit(vector: &[f32]) -> Vec<f32> {
    let squares: f64 = vector.iter().map(|&x| f64::from(x).powi(2)).sum();
    let length = squares.sqrt();
    let scaled = |&x: &f32| (f64::from(x) / length) as f32;
    match length > 0.0 {
        true => vector.iter().map(scaled).collect(),
        false => vector.to_vec(),
    }
}
