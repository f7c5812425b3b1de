//! `POST /rerank`: documents by their relevance to a query, as Cohere, Jina and vLLM rank them.

use std::sync::{Arc, LazyLock};

use axum::response::Response;
use emberlm_tokenizer::EncodedSequence;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::App;
use super::body::{FieldGroup, KnownFields};
use super::bounds::{PROMPT_TOKEN, of_encoding};
use super::delivery::name;
use super::error::ApiError;
use super::fields;
use super::json::json;
use super::model_request::ModelRequest;
use super::text_outputs::{NUMBER, TextUsage, classifier, outputs};
use crate::jobs::Interest;
use crate::limits::MOST_DOCUMENTS;
use crate::model::{ServedModel, Task};

/// Bytes reserved per document for its number and its score.
const RANKED: usize = 256;

/// A request.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct Rerank {
    /// The name or an alias of the model: a cross-encoder, whose classifier has one label.
    model: String,
    /// The text that the documents are compared with.
    query: String,
    /// The documents.
    #[schemars(length(min = 1, max = MOST_DOCUMENTS))]
    documents: Vec<Document>,
    /// The number of the most relevant documents to return; 0 for all.
    #[schemars(range(min = 0, max = u32::MAX), extend("default" = 0))]
    top_n: Option<u32>,
    /// False to return the documents' numbers and scores without their texts.
    #[schemars(extend("default" = true))]
    return_documents: Option<bool>,
    /// Truncate pairs of query and document that are longer than the model's context, the longer text of each first. Without
    /// it, they are an error.
    #[schemars(extend("default" = false))]
    truncate: Option<bool>,
}

/// A text, or an object with a text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a text, or an object with the field `text`")]
enum Document {
    Text(String),
    Object(DocumentText),
}

/// The text of a document.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DocumentText {
    text: String,
}

/// The documents, the most relevant one first.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Reranked {
    id: String,
    model: String,
    usage: TextUsage,
    results: Vec<Ranked>,
}

/// A document with its index in the request. The score is the sigmoid of the model's logit, or the number that a regression
/// predicts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Ranked {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<DocumentText>,
    relevance_score: f32,
}

impl FieldGroup for Rerank {}

static FIELDS: LazyLock<KnownFields<(Rerank,)>> =
    LazyLock::new(|| KnownFields::new(&fields::RERANK));

/// Handles the request.
pub(crate) async fn answer(mut request: ModelRequest) -> Result<Response, ApiError> {
    let (fields,) = request.read(&FIELDS).await?;
    let model = request.model(&fields.model, Task::Classification)?;
    let (_, classifier) = classifier(&model)?;
    if classifier.labels.len() != 1 {
        let labels = classifier.labels.len();
        let rule = format!(
            "must be a cross-encoder, whose classifier has one label; that of {:?} has {labels}: use /classify",
            model.name
        );
        return Err(ApiError::field("model", rule));
    }
    let count = fields.documents.len();
    if !(1..=MOST_DOCUMENTS).contains(&count) {
        let rule = format!("must be between 1 and {MOST_DOCUMENTS} in one request");
        return Err(ApiError::field("documents", rule));
    }
    let ModelRequest {
        app,
        trace,
        mut account,
        ..
    } = request;
    let documents = fields.documents.into_iter().map(|document| match document {
        Document::Text(text) => text,
        Document::Object(DocumentText { text }) => text,
    });
    let pairs = Pairs {
        query: fields.query,
        documents: documents.collect(),
        truncates: fields.truncate == Some(true),
    };
    let returned = match fields.return_documents {
        Some(false) => 0,
        _ => pairs.documents.iter().map(String::len).sum(),
    };
    let (encoded, documents) = encode(&app, &model, pairs).await?;
    let tokens = encoded.iter().map(|pair| pair.ids.len()).sum();
    trace.add_prompt(tokens);
    account.add(tokens * PROMPT_TOKEN + count * (RANKED + NUMBER) + 2 * returned)?;
    let ticket = model.worker.submit_classification(encoded).await;
    let scores = outputs(ticket, count, "documents", &trace).await?;
    let scored = scores.into_iter().zip(documents).enumerate();
    let ranked = scored.map(|(index, (scores, text))| Ranked {
        index,
        document: (fields.return_documents != Some(false)).then_some(DocumentText { text }),
        relevance_score: scores.first().copied().unwrap_or_default(),
    });
    let mut results: Vec<Ranked> = ranked.collect();
    // Equal ones stay in the order of the request.
    results.sort_by(|a, b| b.relevance_score.total_cmp(&a.relevance_score));
    if let Some(top_n @ 1..) = fields.top_n {
        results.truncate(top_n as usize);
    }
    let reranked = Reranked {
        id: name("rerank"),
        model: model.name.clone(),
        usage: TextUsage::new(tokens),
        results,
    };
    json(&app, reranked, account).await
}

/// A query and the documents that are compared with it.
struct Pairs {
    query: String,
    documents: Vec<String>,
    truncates: bool,
}

impl Pairs {
    fn encode(
        &self,
        document: &str,
        model: &ServedModel,
        field: &str,
    ) -> Result<EncodedSequence, ApiError> {
        let (sequences, _) = classifier(model)?;
        if !self.truncates {
            // Without encoding them, which takes long.
            for (field, text) in [("query", &*self.query), (field, document)] {
                let checked = model.check_length(text);
                checked.map_err(|error| ApiError::from(error).at(field))?;
            }
        }
        let pair = sequences.encode_pair(&self.query, document);
        let pair = pair.map_err(|error| ApiError::field(field, error.to_string()))?;
        let context = model.worker.limits().context;
        match pair.ids.len() > context {
            false => Ok(pair),
            true if self.truncates => {
                let pair = sequences.with_max_tokens(context);
                let pair = pair.encode_pair(&self.query, document);
                pair.map_err(|error| ApiError::field(field, error.to_string()))
            }
            true => Err(ApiError::context(pair.ids.len(), 0, context).at(field)),
        }
    }
}

/// Encodes the pairs on another thread. Returns them with the documents.
///
/// # Errors
/// A pair is too long or cannot be encoded. Also, there is no memory, or too many requests wait.
async fn encode(
    app: &App,
    model: &Arc<ServedModel>,
    pairs: Pairs,
) -> Result<(Vec<EncodedSequence>, Vec<String>), ApiError> {
    let lengths = pairs.documents.iter().map(String::len);
    let longest = pairs.query.len() + lengths.clone().max().unwrap_or(0);
    let bytes = pairs.query.len().saturating_mul(pairs.documents.len());
    let bytes = bytes.saturating_add(lengths.sum());
    // Each token has an id and a segment.
    let working = app.memory().reserve(of_encoding(longest, 2 * bytes))?;
    let model = Arc::clone(model);
    let encode_all = move |interest: &Interest| {
        let _working = working;
        let documents = pairs.documents.iter().enumerate();
        let encoded = documents.map(|(index, document)| match interest.is_there() {
            true => pairs.encode(document, &model, &format!("documents[{index}]")),
            false => Err(ApiError::internal("nobody waits for the answer")),
        });
        let encoded: Result<Vec<EncodedSequence>, ApiError> = encoded.collect();
        Ok((encoded?, pairs.documents))
    };
    app.jobs().run(bytes, encode_all).await?
}
