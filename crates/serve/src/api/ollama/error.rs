//! Errors in Ollama's form: `{"error": "message"}`.

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

use crate::api::error::{ApiError, rewritten};

/// The body of an error response.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct OllamaError {
    /// A message for humans, which begins with the field at fault.
    error: String,
}

impl From<ApiError> for OllamaError {
    fn from(error: ApiError) -> Self {
        Self {
            error: error.message(),
        }
    }
}

/// Writes the errors of these endpoints, wherever they arise, in Ollama's form. Ollama's clients, and its documentation of curl, do
/// not declare their bodies as JSON. Requests of pages of other origins are refused before they come here.
pub(crate) async fn in_its_form(mut request: Request, next: Next) -> Response {
    const JSON: HeaderValue = HeaderValue::from_static("application/json");
    request.headers_mut().insert(header::CONTENT_TYPE, JSON);
    let response = next.run(request).await;
    rewritten(response, |error| Json(OllamaError::from(error)))
}
