//! `POST /classify`: the labels of texts.

use std::sync::LazyLock;

use axum::response::Response;
use emberlm_model::encoder::most_probable;
use emberlm_tokenizer::EncodedSequence;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::body::{FieldGroup, KnownFields};
use super::bounds::PROMPT_TOKEN;
use super::delivery::{name, now};
use super::error::ApiError;
use super::fields;
use super::json::json;
use super::model_request::ModelRequest;
use super::prompt::Prompt;
use super::text_outputs::{NUMBER, TextUsage, classifier, outputs};
use crate::model::Task;

/// Bytes reserved per text for its label and its number.
const LABELLED: usize = 256;

/// A request.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct Classify {
    /// The name or an alias of the model: an encoder with a classifier of texts.
    model: String,
    /// The texts or tokens to classify. The model's special tokens are added to texts; tokens are used as they are.
    input: Prompt,
    /// Truncate texts and tokens that are longer than the model's context, as `emberlm classify` does. Without it, they are an
    /// error.
    #[schemars(extend("default" = false))]
    truncate: Option<bool>,
}

/// The labels.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Classified {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    data: Vec<Labelled>,
    usage: TextUsage,
}

/// The most probable label of a text, and the scores of all labels: probabilities, or the numbers that a regression predicts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Labelled {
    index: usize,
    label: String,
    probs: Vec<f32>,
    num_classes: usize,
}

impl FieldGroup for Classify {}

static FIELDS: LazyLock<KnownFields<(Classify,)>> =
    LazyLock::new(|| KnownFields::new(&fields::CLASSIFY));

/// Handles the request.
pub(crate) async fn answer(mut request: ModelRequest) -> Result<Response, ApiError> {
    let (fields,) = request.read(&FIELDS).await?;
    let model = request.model(&fields.model, Task::Classification)?;
    let (_, classifier) = classifier(&model)?;
    let ModelRequest {
        app,
        trace,
        mut account,
        ..
    } = request;
    let input = fields.input;
    let truncates = fields.truncate == Some(true);
    let texts = input.truncated_tokens("input", &model, &app, truncates);
    let texts = texts.await?;
    let (count, tokens) = (texts.len(), texts.iter().map(Vec::len).sum());
    trace.add_prompt(tokens);
    let names = classifier.labels.iter().map(String::len);
    let text = LABELLED + classifier.labels.len() * NUMBER + 2 * names.max().unwrap_or(0);
    account.add(tokens * PROMPT_TOKEN + count * text)?;
    let texts = texts.into_iter().map(EncodedSequence::of_ids).collect();
    let ticket = model.worker.submit_classification(texts).await;
    let outputs = outputs(ticket, count, "input", &trace).await?;
    let data = outputs.into_iter().enumerate();
    let data = data.map(|(index, probs)| Labelled {
        index,
        label: most_probable(&classifier.labels, &probs)
            .map_or_else(String::new, |(label, _)| label.to_owned()),
        num_classes: probs.len(),
        probs,
    });
    let classified = Classified {
        id: name("classify"),
        object: "list",
        created: now(),
        model: model.name.clone(),
        data: data.collect(),
        usage: TextUsage::new(tokens),
    };
    json(&app, classified, account).await
}
