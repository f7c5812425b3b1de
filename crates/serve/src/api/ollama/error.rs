//! Errors in Ollama's form: `{"error": "message"}`.

use axum::Json;
use axum::extract::Request;
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

/// Writes the errors of these endpoints, wherever they arise, in Ollama's form.
pub(crate) async fn in_its_form(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    rewritten(response, |error| Json(OllamaError::from(error)))
}
