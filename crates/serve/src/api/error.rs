//! API errors in OpenAI's format: `{"error": {"message", "type", "param", "code"}}`.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use emberlm_generate::{GenerateError, LogitsError, SettingError};
use emberlm_tokenizer::StopStringError;
use schemars::JsonSchema;
use serde::Serialize;

use crate::grammars::GrammarError;
use crate::worker::Refusal;

/// An error response.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    body: ErrorBody,
}

/// A description of the error.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ErrorBody {
    /// A message for people.
    message: String,
    /// The kind of error.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The field at fault.
    param: Option<String>,
    /// A code for programs.
    code: Option<&'static str>,
}

/// An error's answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ErrorAnswer {
    error: ErrorBody,
}

const INVALID: &str = "invalid_request_error";

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            body: ErrorBody {
                message: message.into(),
                kind,
                param: None,
                code: None,
            },
        }
    }

    /// The request is invalid.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, INVALID, message)
    }

    /// The value of a field is invalid.
    pub fn field(name: impl Into<String>, rule: impl AsRef<str>) -> Self {
        let name = name.into();
        Self::invalid(format!("{name}: {}", rule.as_ref())).at(name)
    }

    pub fn at(mut self, param: impl Into<String>) -> Self {
        self.body.param = Some(param.into());
        self
    }

    /// Renames the field at fault if `rename` returns another name, for APIs with different field names.
    pub fn renamed(mut self, rename: impl FnOnce(&str) -> Option<String>) -> Self {
        let Some(from) = self.body.param.take() else {
            return self;
        };
        let to = rename(&from).unwrap_or_else(|| from.clone());
        if let Some(rest) = self.body.message.strip_prefix(&from) {
            self.body.message = format!("{to}{rest}");
        }
        self.body.param = Some(to);
        self
    }

    fn code(mut self, code: &'static str) -> Self {
        self.body.code = Some(code);
        self
    }

    pub fn unknown_model(name: &str, known: &[&str]) -> Self {
        let known = known.join(", ");
        let shown: String = name.chars().take(100).collect();
        let message = format!("the model {shown:?} does not exist; there is: {known}");
        Self::new(StatusCode::NOT_FOUND, INVALID, message)
            .at("model")
            .code("model_not_found")
    }

    pub fn not_found() -> Self {
        let message = "there is nothing at this address; /openapi.json lists the API";
        Self::new(StatusCode::NOT_FOUND, INVALID, message).code("not_found")
    }

    pub fn method() -> Self {
        let message = "this address does not take this method; /openapi.json says which it takes";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, INVALID, message).code("method_not_allowed")
    }

    pub fn key() -> Self {
        let message =
            "the API key is missing or wrong: it goes into the header `Authorization: Bearer KEY`";
        Self::new(StatusCode::UNAUTHORIZED, INVALID, message).code("invalid_api_key")
    }

    pub fn too_large(limit: usize) -> Self {
        let message = format!("the request's body must have at most {limit} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, INVALID, message).code("body_too_large")
    }

    pub fn media_type() -> Self {
        let message =
            "the body must be JSON, and the header say so: `Content-Type: application/json`";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, INVALID, message)
            .code("unsupported_media_type")
    }

    pub fn slow_body() -> Self {
        let message = "the request's body took too long to come";
        Self::new(StatusCode::REQUEST_TIMEOUT, INVALID, message).code("request_timeout")
    }

    pub fn timeout(seconds: u64) -> Self {
        let message = format!("the request took longer than {seconds} s");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "timeout_error", message).code("timeout")
    }

    pub fn context(prompt: usize, new: usize, context: usize) -> Self {
        let message = match new {
            0 => format!(
                "a text of {prompt} tokens is longer than this model's context of {context}"
            ),
            _ => format!(
                "a prompt of {prompt} tokens and {new} new ones are more than this model's context of {context}: \
                 shorten it, or lower max_tokens"
            ),
        };
        Self::invalid(message).code("context_length_exceeded")
    }

    fn busy(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message)
            .code("rate_limit_exceeded")
    }

    /// The request would need more memory than one request may use.
    pub fn request_memory(bytes: usize, most: usize) -> Self {
        let message = format!(
            "the answers may take {} KiB of memory, more than the {} KiB that one request may: \
             lower n, max_tokens or the number of log-probabilities, or stream the answer",
            bytes.div_ceil(1 << 10),
            most >> 10,
        );
        Self::invalid(message).code("request_too_large")
    }

    /// All memory for requests is currently in use.
    pub fn all_memory(most: usize) -> Self {
        Self::busy(format!(
            "the requests under way take all of the {} KiB of memory that they may; try again later",
            most >> 10,
        ))
    }

    /// The server does not answer for the requested host, or the request is from a page of another origin.
    pub fn forbidden(message: impl Into<String>, code: &'static str) -> Self {
        Self::new(StatusCode::FORBIDDEN, INVALID, message).code(code)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// The error's description.
    pub fn body(self) -> ErrorBody {
        self.body
    }

    /// The error as an event of a stream.
    pub fn answer(self) -> ErrorAnswer {
        ErrorAnswer { error: self.body }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status;
        let mut response = (status, Json(self.answer())).into_response();
        let extra = match status {
            StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, "Bearer")),
            StatusCode::TOO_MANY_REQUESTS => Some((header::RETRY_AFTER, "1")),
            _ => None,
        };
        if let Some((name, value)) = extra {
            let headers = response.headers_mut();
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

impl From<SettingError> for ApiError {
    fn from(error: SettingError) -> Self {
        // Map the engine's names of settings to the API's.
        let param = match error.field {
            "samples" => "n",
            "json_schema" => "response_format",
            "regex" => "structured_outputs",
            field => field,
        };
        Self::invalid(format!("{param} = {}: {}", error.value, error.rule)).at(param)
    }
}

impl From<StopStringError> for ApiError {
    fn from(error: StopStringError) -> Self {
        Self::invalid(error.to_string()).at("stop")
    }
}

impl From<GrammarError> for ApiError {
    fn from(error: GrammarError) -> Self {
        match error {
            GrammarError::Refused(error) => error.into(),
            GrammarError::Busy => Self::busy(error.to_string()),
            GrammarError::Failed(_) => Self::internal(error.to_string()),
        }
    }
}

impl From<GenerateError> for ApiError {
    fn from(error: GenerateError) -> Self {
        match error {
            GenerateError::Setting(error) => error.into(),
            GenerateError::Prompt(error) => Self::invalid(error.to_string()).at("prompt"),
            GenerateError::Overflow {
                prompt,
                max_new_tokens,
                context,
            } => Self::context(prompt, max_new_tokens, context),
            GenerateError::Logits(error @ LogitsError::NoneAllowed { .. }) => {
                Self::invalid(error.to_string()).code("constraint_not_met")
            }
            GenerateError::Logits(error) => Self::internal(error.to_string()),
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Full { .. } => Self::busy(format!("{refusal}; try again later")),
            Refusal::Invalid(error) => error.into(),
            Refusal::Gone => Self::internal(refusal.to_string()),
        }
    }
}
