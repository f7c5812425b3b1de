//! API errors in OpenAI's format: `{"error": {"message", "type", "param", "code"}}`.

mod kinds;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use emberlm_generate::{GenerateError, LogitsError, SettingError};
use emberlm_tokenizer::StopStringError;
use schemars::JsonSchema;
use serde::Serialize;

use crate::admin::RefusedLoad;
use crate::grammars::GrammarError;
use crate::jobs::JobError;
use crate::memory::MemoryError;
use crate::model::{Task, TextTooLong};
use crate::worker::Refusal;
use kinds::{
    BODY_SIZE, BUSY, CONSTRAINT, CONTEXT, INTERNAL, INVALID, KEY, MEDIA_TYPE, METHOD, MODEL,
    MODEL_EXISTS, MODEL_PATH, NO_ADMIN, NO_MEMORY, PATH, REQUEST_MEMORY, SLOW_BODY, TASK, TIMEOUT,
};
pub use kinds::{ERRORS, ErrorKind};
pub(crate) use kinds::{HOST, ORIGIN};

/// An error response.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    body: ErrorBody,
}

/// A description of the error.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ErrorBody {
    /// A message for humans.
    message: String,
    /// The kind of error.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The field at fault.
    param: Option<String>,
    /// A code for programs.
    code: Option<&'static str>,
}

/// The body of an error response.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ErrorAnswer {
    error: ErrorBody,
}

impl ApiError {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            // Every status of the list is valid.
            status: StatusCode::from_u16(kind.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            body: ErrorBody {
                message: shortened(message.into()),
                kind: kind.kind,
                param: None,
                code: kind.code,
            },
        }
    }

    /// The request is invalid.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(INVALID, message)
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

    /// Names `field` as that of an invalid schema or expression.
    pub fn of_form(self, field: &str) -> Self {
        self.renamed(|from| {
            let is_form = matches!(from, "response_format" | "structured_outputs");
            is_form.then(|| field.to_owned())
        })
    }

    pub fn unknown_model(name: &str, known: &[&str]) -> Self {
        let known = known.join(", ");
        let shown: String = name.chars().take(100).collect();
        let message = match known.is_empty() {
            true => format!("the model {shown:?} does not exist; no model is served now"),
            false => format!("the model {shown:?} does not exist; there is: {known}"),
        };
        Self::new(MODEL, message).at("model")
    }

    /// The model `name` of a kind that is not used for `task`.
    pub fn task(name: &str, kind: &str, task: Task) -> Self {
        let rest = match task {
            Task::Embedding => ", which embeds no texts: use a decoder or an encoder",
            Task::Generation => ", which generates no text: use /v1/embeddings, or another model",
            Task::Continuation => ", and only decoders continue a text",
            Task::Classification => {
                " without a classifier of texts: use a model whose config.json has an architecture …ForSequenceClassification"
            }
        };
        let message = format!("the model {name:?} is {kind}{rest}");
        Self::new(TASK, message).at("model")
    }

    pub fn not_found() -> Self {
        let message = "there is nothing at this address; /openapi.json lists the API";
        Self::new(PATH, message)
    }

    pub fn method() -> Self {
        let message = "this path does not support this method; see /openapi.json";
        Self::new(METHOD, message)
    }

    /// The key is missing or wrong. `name` is its name.
    pub fn key(name: &str) -> Self {
        let place = "it goes into the header `Authorization: Bearer KEY`";
        Self::new(KEY, format!("the {name} is missing or wrong: {place}"))
    }

    pub fn no_admin() -> Self {
        let message =
            "models are loaded and removed only if the server was started with --admin-key-file";
        Self::new(NO_ADMIN, message)
    }

    pub fn too_large(limit: usize) -> Self {
        let message = format!("the request's body must have at most {limit} bytes");
        Self::new(BODY_SIZE, message)
    }

    pub fn media_type() -> Self {
        let message = "the body must be JSON with the header `Content-Type: application/json`";
        Self::new(MEDIA_TYPE, message)
    }

    pub fn slow_body() -> Self {
        Self::new(SLOW_BODY, "the request's body took too long to come")
    }

    pub fn timeout(seconds: u64) -> Self {
        Self::new(TIMEOUT, format!("the request took longer than {seconds} s"))
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
        Self::new(CONTEXT, message)
    }

    pub fn busy(message: impl Into<String>) -> Self {
        Self::new(BUSY, message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(INTERNAL, message)
    }

    /// The status.
    pub fn status(&self) -> u16 {
        self.status.as_u16()
    }

    /// The message for humans.
    pub fn message(self) -> String {
        self.body.message
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

/// A text without its middle if it is long. Messages quote values of the request, which may have megabytes.
pub(crate) fn shortened(text: String) -> String {
    const END: usize = 1000;
    if text.len() <= 2 * END {
        return text;
    }
    let start = text.floor_char_boundary(END);
    let end = text.ceil_char_boundary(text.len() - END);
    format!("{}…{}", &text[..start], &text[end..])
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status;
        let error = self.clone();
        let mut response = (status, Json(self.answer())).into_response();
        // For APIs with another form of errors.
        response.extensions_mut().insert(error);
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

/// A response with its error, if it is one, in the form of another API.
pub(crate) fn rewritten<B: IntoResponse>(
    mut response: Response,
    body: impl FnOnce(ApiError) -> B,
) -> Response {
    let Some(error) = response.extensions_mut().remove::<ApiError>() else {
        return response;
    };
    let (head, _) = response.into_parts();
    let mut rewritten = (head.status, body(error)).into_response();
    for name in [header::WWW_AUTHENTICATE, header::RETRY_AFTER] {
        if let Some(value) = head.headers.get(&name) {
            rewritten.headers_mut().insert(name, value.clone());
        }
    }
    rewritten
}

impl From<SettingError> for ApiError {
    fn from(error: SettingError) -> Self {
        // Map the engine's names of settings to the API's.
        let param = match error.field {
            "samples" => "n",
            "max_new_tokens" => "max_tokens",
            "stop_tokens" => "stop_token_ids",
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
            GrammarError::Memory(error) => error.into(),
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
                Self::new(CONSTRAINT, error.to_string())
            }
            GenerateError::Logits(error) => Self::internal(error.to_string()),
        }
    }
}

impl From<RefusedLoad> for ApiError {
    fn from(refused: RefusedLoad) -> Self {
        let kind = match &refused {
            RefusedLoad::Exists(_) => MODEL_EXISTS,
            RefusedLoad::Path(_) => MODEL_PATH,
            RefusedLoad::Memory(_) => NO_MEMORY,
            RefusedLoad::Invalid(_) => INVALID,
        };
        Self::new(kind, refused.to_string())
    }
}

impl From<MemoryError> for ApiError {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::Request { .. } => Self::new(REQUEST_MEMORY, error.to_string()),
            MemoryError::All { .. } => Self::busy(error.to_string()),
        }
    }
}

impl From<JobError> for ApiError {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Full => Self::busy(error.to_string()),
            JobError::Failed => Self::internal(error.to_string()),
        }
    }
}

impl From<TextTooLong> for ApiError {
    fn from(error: TextTooLong) -> Self {
        Self::new(CONTEXT, error.to_string())
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Full { .. } => Self::busy(format!("{refusal}; try again later")),
            Refusal::Invalid(error) => error.into(),
            Refusal::Unread => Self::busy(refusal.to_string()),
            Refusal::Load(_) | Refusal::Gone => Self::internal(refusal.to_string()),
        }
    }
}
