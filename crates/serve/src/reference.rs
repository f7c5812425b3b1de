//! The definitions of the HTTP API for the generated reference page.

use emberlm_generate::grammar_limits::LimitInfo;
use serde_json::Value;

use crate::api::description::Description;
use crate::api::responses::STREAM_EVENTS;
use crate::limits;
use crate::tools::FORMATS;

pub use crate::api::error::{ERRORS, ErrorKind};
pub use crate::metrics::{ALL as METRICS, MetricInfo, SECONDS as BUCKETS};

/// The OpenAPI description, as `GET /openapi.json` returns it, and the request fields in groups.
#[derive(Clone, Debug)]
pub struct ApiDescription {
    /// The OpenAPI 3.1 document.
    pub document: Value,
    /// Schemas of the groups of fields that the bodies of requests consist of, by name: `delivery`, `completions`, `chat`,
    /// `responses`, `settings`, `embeddings` and `play`.
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

/// Describes the API.
pub fn api() -> ApiDescription {
    let Description { document, groups } = Description::new();
    ApiDescription { document, groups }
}

/// The events of a stream of `/v1/responses`: when they are sent, and their types in order.
pub fn stream_events() -> [(&'static str, &'static [&'static str]); 5] {
    STREAM_EVENTS
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

/// The limits of requests that have no option.
pub fn fixed_limits() -> Vec<LimitInfo> {
    limits::fixed().into()
}

/// The limits of schemas and expressions.
pub fn grammar_limits() -> Vec<LimitInfo> {
    limits::of_grammars()
}
