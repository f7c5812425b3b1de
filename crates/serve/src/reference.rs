//! The definitions of the HTTP API for the generated reference page.

use emberlm_generate::grammar_limits::LimitInfo;
use serde_json::Value;

use crate::api::anthropic;
use crate::api::description::Description;
use crate::api::fields::{self, Treatment};
use crate::api::responses::STREAM_EVENTS;
use crate::limits;
use crate::reasoning;
use crate::tools::FORMATS;

pub use crate::api::error::{ERRORS, ErrorKind};
pub use crate::metrics::{ALL as METRICS, MetricInfo, SECONDS as BUCKETS};
pub use crate::reasoning::ReasoningFormat;

/// The OpenAPI description, as `GET /openapi.json` returns it, and the request fields in groups.
#[derive(Clone, Debug)]
pub struct ApiDescription {
    /// The OpenAPI 3.1 document.
    pub document: Value,
    /// Schemas of the groups of fields that the bodies of requests consist of, by name: `delivery`, `completions`, `chat`,
    /// `responses`, `template`, `settings`, `embeddings`, `classify`, `rerank`, `tokenize`, `detokenize`, `messages`, `messages sending`,
    /// `ollama`, `ollama chat`, `ollama generate`, `ollama embed`, `ollama embed one`,
    /// `ollama show`, `ollama pull`, `admin model`, `load lora`, `unload lora` and `play`.
    pub groups: Vec<(&'static str, Value)>,
}

/// The format in which models with certain chat templates write function calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFormat {
    /// The models.
    pub models: &'static str,
    /// The texts that the template contains, and those that it does not contain.
    pub template: String,
    /// An answer with calls.
    pub example: String,
}

/// A field of other servers that this one does not implement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnusedField {
    /// The path in the body of a request.
    pub path: &'static str,
    /// The accepted values as JSON. `None` if all values have the same treatment.
    pub only: Option<&'static [&'static str]>,
    /// True if a value is accepted without effect.
    pub is_accepted: bool,
    /// The reason.
    pub reason: &'static str,
}

/// The fields that each endpoint does not implement, by the endpoint's path.
pub fn unused_fields() -> [(&'static str, Vec<UnusedField>); 17] {
    [
        ("/v1/completions", &fields::COMPLETIONS),
        ("/v1/chat/completions", &fields::CHAT),
        ("/v1/responses", &fields::RESPONSES),
        ("/v1/embeddings", &fields::EMBEDDINGS),
        ("/classify", &fields::CLASSIFY),
        ("/rerank", &fields::RERANK),
        ("/v1/messages", &fields::MESSAGES),
        ("/v1/messages/count_tokens", &fields::COUNT_TOKENS),
        ("/api/chat", &fields::OLLAMA_CHAT),
        ("/api/generate", &fields::OLLAMA_GENERATE),
        ("/api/embed", &fields::OLLAMA_EMBED),
        ("/api/embeddings", &fields::OLLAMA_EMBED),
        ("/api/show", &fields::OLLAMA_SHOW),
        ("/api/pull", &fields::OLLAMA_PULL),
        ("/v1/load_lora_adapter", &fields::LOAD_LORA),
        ("/v1/unload_lora_adapter", &fields::UNLOAD_LORA),
        ("/tokenize", &fields::TOKENIZE),
    ]
    .map(|(endpoint, table)| (endpoint, table.rows().filter_map(unused).collect()))
}

fn unused((path, treatment): fields::Row) -> Option<UnusedField> {
    let (is_accepted, only, reason) = match treatment {
        Treatment::Ignored(_, reason) => (true, None, reason),
        Treatment::Only(values, reason) => (true, Some(values), reason),
        Treatment::Refused(reason) => (false, None, reason),
        Treatment::Members => return None,
    };
    Some(UnusedField {
        path,
        only,
        is_accepted,
        reason,
    })
}

/// Describes the API.
pub fn api() -> ApiDescription {
    let Description { document, groups } = Description::new();
    ApiDescription { document, groups }
}

/// The events of a stream: when they are sent, and their types in order.
pub type StreamEvents = &'static [(&'static str, &'static [&'static str])];

/// The events of streams of `/v1/responses` and `/v1/messages`.
pub fn stream_events() -> [(&'static str, StreamEvents); 2] {
    [
        ("/v1/responses", &STREAM_EVENTS),
        ("/v1/messages", &anthropic::STREAM_EVENTS),
    ]
}

/// The formats of function calls, in the order in which they are compared with a template.
pub fn call_formats() -> Vec<CallFormat> {
    let formats = FORMATS.iter().map(|format| CallFormat {
        models: format.models(),
        template: format.condition(),
        example: format.example(),
    });
    formats.collect()
}

/// The tags around the reasoning of models, in the order in which they are compared with a template.
pub fn reasoning_formats() -> &'static [ReasoningFormat] {
    &reasoning::FORMATS
}

/// The limits of requests that have no option.
pub fn fixed_limits() -> Vec<LimitInfo> {
    limits::fixed().into()
}

/// The limits of schemas and expressions.
pub fn grammar_limits() -> Vec<LimitInfo> {
    limits::of_grammars()
}
