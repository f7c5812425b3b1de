//! Errors in Anthropic's form: `{"type": "error", "error": {"type", "message"}}`.

use axum::Json;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

use crate::api::error::{ApiError, rewritten};

/// The body of an error response.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct AnthropicError {
    #[serde(rename = "type")]
    kind: ErrorKind,
    error: Description,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "MessagesErrorKind")]
enum ErrorKind {
    Error,
}

/// A description of the error.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "MessagesError")]
struct Description {
    /// The kind of error, by its status.
    #[serde(rename = "type")]
    kind: &'static str,
    /// A message for humans, which begins with the field at fault.
    message: String,
}

impl From<ApiError> for AnthropicError {
    fn from(error: ApiError) -> Self {
        let kind = match error.status() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            504 => "timeout_error",
            500.. => "api_error",
            _ => "invalid_request_error",
        };
        Self {
            kind: ErrorKind::Error,
            error: Description {
                kind,
                message: error.message(),
            },
        }
    }
}

/// Writes the errors of these endpoints, wherever they arise, in Anthropic's form.
pub(crate) async fn in_its_form(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    rewritten(response, |error| Json(AnthropicError::from(error)))
}
