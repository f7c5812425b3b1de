//! The HTTP API: the endpoints of OpenAI, Anthropic and Ollama, the web page's requests, health and metrics.
//!
//! | path | module |
//! |---|---|
//! | `/v1/completions` | `completions` |
//! | `/v1/chat/completions` | `chat` |
//! | `/v1/responses` | `responses` |
//! | `/v1/embeddings` | `embeddings` |
//! | `/v1/messages`, `/v1/messages/count_tokens` | `anthropic` |
//! | `/api/chat`, `/api/generate`, `/api/embed`, `/api/embeddings`, `/api/tags`, `/api/show`, `/api/ps`, `/api/pull`, `/api/version` | `ollama` |
//! | `/classify` | `classify` |
//! | `/rerank` and its other names | `rerank` |
//! | `/tokenize`, `/detokenize` | `tokens` |
//! | `/v1/models`, `/v1/models/{name}`, `/api/models` | `models` |
//! | `/admin/models`, `/admin/models/{name}`, `/v1/load_lora_adapter`, `/v1/unload_lora_adapter` | `admin`, with a separate key |
//! | `/api/play` | `play`, for the page in `playground` |
//! | `/openapi.json` | `description` |
//! | `/health` and its other names, `/metrics` | this module and `crate::metrics`; `crate::request_log` writes the log |
//!
//! `model_request` extracts a request. `body` (with `fields`), `settings`, `delivery`, `prompt` and `conversation` parse its
//! fields, and `generation` builds the engine's request from them. `answers` collects the generated answers,
//! `answer_parts` splits them into reasoning, text and calls, and `answer_stream` sends them as events. `text_outputs` collects the vectors and
//! scores of texts. `bounds` estimates the memory of requests, `deadline` limits their time, `json` writes responses,
//! and `error` defines all error responses.
//!
//! No field of a client names a file, a program or an address. A client sends only text, numbers, schemas and
//! expressions, all with limits on their size and cost. An administrator names the files of models.

mod admin;
mod answer_parts;
mod answer_stream;
mod answers;
pub(crate) mod anthropic;
mod body;
mod bounds;
mod chat;
mod classify;
mod completions;
mod conversation;
mod deadline;
mod delivery;
pub(crate) mod description;
mod embeddings;
pub(crate) mod error;
pub(crate) mod fields;
mod generation;
mod json;
mod logprobs;
mod model_request;
mod models;
mod ollama;
mod play;
mod prompt;
mod rerank;
pub(crate) mod responses;
mod settings;
mod text_outputs;
mod tokens;

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use blake3::Hash;
use serde_json::json;

use crate::admin::Admin;
use crate::jobs::Jobs;
use crate::limits::Limits;
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::model::ServedModel;
use crate::playground;
use crate::request_log::{RequestLog, Trace};
use crate::served_models::ServedModels;
use error::ApiError;

/// The models to serve and the limits of requests.
pub struct Service {
    /// The models, which may change while the server runs.
    pub models: Arc<ServedModels>,
    /// The limits of requests.
    pub limits: Limits,
    /// The API key that clients must send. `None` if no key is required.
    pub key: Option<String>,
    /// The access of an administrator. `None` rejects all requests under `/admin`.
    pub admin: Option<Admin>,
    /// Logs every request that passes the server's [`Hosts`](crate::Hosts) check.
    /// [`Server::with_log`](crate::Server::with_log) logs the rejected ones.
    pub log: Option<Arc<RequestLog>>,
}

/// The most bytes of a body that is worked on in passing.
const IN_PASSING: usize = 8 << 10;

/// State shared by the handlers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App(Arc<Inner>);

struct Inner {
    models: Arc<ServedModels>,
    limits: Limits,
    /// The hash of the key. Comparing hashes leaks no timing information about the key.
    key: Option<Hash>,
    admin: Option<admin::Access>,
    metrics: Metrics,
    memory: Memory,
    jobs: Jobs,
    log: Option<Arc<RequestLog>>,
}

impl App {
    fn new(service: Service) -> Self {
        Self(Arc::new(Inner {
            metrics: Metrics::new(Arc::clone(&service.models)),
            models: service.models,
            memory: Memory::new(service.limits.request_memory, service.limits.memory),
            limits: service.limits,
            jobs: Jobs::default(),
            log: service.log,
            key: service.key.map(|key| blake3::hash(key.as_bytes())),
            admin: service.admin.map(admin::Access::from),
        }))
    }

    pub fn models(&self) -> Arc<[Arc<ServedModel>]> {
        self.0.models.models()
    }

    /// Finds a model by its name or an alias.
    ///
    /// # Errors
    /// No model has this name.
    pub fn model(&self, name: &str) -> Result<Arc<ServedModel>, ApiError> {
        let found = self.0.models.find(name);
        found.ok_or_else(|| self.unknown_model(name))
    }

    /// The error for a name that no model has.
    fn unknown_model(&self, name: &str) -> ApiError {
        let models = self.models();
        let known: Vec<&str> = models.iter().map(|model| &*model.name).collect();
        ApiError::unknown_model(name, &known)
    }

    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub fn memory(&self) -> &Memory {
        &self.0.memory
    }

    pub fn jobs(&self) -> &Jobs {
        &self.0.jobs
    }

    /// Runs a part of the work on a request with a body of `bytes`: a long one on another thread.
    ///
    /// # Errors
    /// Those of the work. Also, too many requests wait.
    pub async fn work<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        match bytes <= IN_PASSING {
            true => work(),
            false => self.jobs().run(bytes, move |_| work()).await?,
        }
    }
}

/// The routes of the API and of the page.
pub fn router(service: Service) -> Router {
    let app = App::new(service);
    let openai = Router::new()
        .route("/v1/completions", post(completions::answer))
        .route("/v1/chat/completions", post(chat::answer))
        .route("/v1/responses", post(responses::answer))
        .route("/v1/embeddings", post(embeddings::answer))
        .route("/classify", post(classify::answer))
        .merge(reranking())
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/v1/models", get(models::all))
        .route("/v1/models/{name}", get(models::one))
        .route("/api/models", get(models::for_page))
        .route("/api/play", post(play::answer))
        .route("/metrics", get(metrics));
    let anthropic = Router::new()
        .route("/v1/messages", post(anthropic::messages))
        .route("/v1/messages/count_tokens", post(anthropic::count_tokens));
    let ollama = Router::new()
        .route("/api/chat", post(ollama::chat))
        .route("/api/generate", post(ollama::generate))
        .route("/api/embed", post(ollama::embed))
        .route("/api/embeddings", post(ollama::embed_one))
        .route("/api/tags", get(ollama::tags))
        .route("/api/show", post(ollama::show))
        .route("/api/ps", get(ollama::ps))
        .route("/api/pull", post(ollama::pull))
        .route("/api/version", get(ollama::version));
    let admin = Router::new()
        .route("/admin/models", get(admin::models).post(admin::add))
        .route("/admin/models/{name}", delete(admin::remove))
        .route("/v1/load_lora_adapter", post(admin::load_lora))
        .route("/v1/unload_lora_adapter", post(admin::unload_lora))
        .route_layer(middleware::from_fn_with_state(app.clone(), deadline::keep))
        .route_layer(middleware::from_fn_with_state(app.clone(), require_admin));
    let guarded = |routes: Router<App>| {
        routes
            .route_layer(middleware::from_fn_with_state(app.clone(), deadline::keep))
            .route_layer(middleware::from_fn_with_state(app.clone(), require_key))
    };
    Router::new()
        .merge(guarded(openai))
        .merge(guarded(anthropic).route_layer(middleware::from_fn(anthropic::in_its_form)))
        .merge(guarded(ollama).route_layer(middleware::from_fn(ollama::in_its_form)))
        .merge(admin)
        .merge(playground::router())
        .merge(health())
        .route("/openapi.json", get(openapi))
        .fallback(async || ApiError::not_found())
        .method_not_allowed_fallback(async || ApiError::method())
        .layer(middleware::from_fn_with_state(app.clone(), count_and_log))
        .with_state(app)
}

/// The paths at which other servers, and those that watch over servers, ask whether a server answers.
pub(crate) const HEALTH: [&str; 6] = [
    "/health",
    "/v1/health",
    "/healthz",
    "/livez",
    "/readyz",
    "/ping",
];

/// The paths at which other servers rank documents.
pub(crate) const RERANK: [&str; 3] = ["/rerank", "/v1/rerank", "/v2/rerank"];

fn reranking() -> Router<App> {
    RERANK.iter().fold(Router::new(), |router, path| {
        router.route(path, post(rerank::answer))
    })
}

fn health() -> Router<App> {
    HEALTH.iter().fold(Router::new(), |router, path| {
        router.route(path, get(async || Json(json!({ "status": "ok" }))))
    })
}

/// The header of the key of Anthropic's clients.
const ANTHROPIC_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Rejects requests without the key.
async fn require_key(State(app): State<App>, request: Request, next: Next) -> Response {
    let presented = presented_key(request.headers());
    match app.0.key {
        Some(key) if presented != Some(key) => ApiError::key("API key").into_response(),
        _ => next.run(request).await,
    }
}

/// Rejects requests without the administrator's key.
async fn require_admin(State(app): State<App>, request: Request, next: Next) -> Response {
    let presented = presented_key(request.headers());
    match &app.0.admin {
        None => ApiError::no_admin().into_response(),
        Some(access) if presented != Some(access.key) => {
            ApiError::key("administrator's key").into_response()
        }
        Some(_) => next.run(request).await,
    }
}

/// The hash of a request's key.
fn presented_key(headers: &HeaderMap) -> Option<Hash> {
    let text = |name| headers.get(name)?.to_str().ok();
    let bearer = text(header::AUTHORIZATION).and_then(bearer);
    let key = bearer.or_else(|| text(ANTHROPIC_KEY))?;
    Some(blake3::hash(key.as_bytes()))
}

/// The token of an `Authorization` header. The scheme is case-insensitive (RFC 9110, section 11.1).
fn bearer(authorization: &str) -> Option<&str> {
    let (scheme, key) = authorization.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

/// Counts and logs responses.
async fn count_and_log(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let trace = Arc::new(Trace::new(&request, app.0.log.clone()));
    request.extensions_mut().insert(Arc::clone(&trace));
    let path = request.extensions().get::<MatchedPath>();
    // Arbitrary paths are counted together, so clients cannot grow the metrics without bound.
    let path = path.map_or("other".to_owned(), |path| path.as_str().to_owned());
    let response = next.run(request).await;
    app.metrics().answered(&path, response.status().as_u16());
    trace.follow(response)
}

async fn openapi() -> Response {
    let json = [(header::CONTENT_TYPE, "application/json")];
    (json, description::document()).into_response()
}

async fn metrics(State(app): State<App>) -> Response {
    const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, KIND)], app.metrics().text()).into_response()
}
