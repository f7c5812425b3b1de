//! Requests about the served models.

use std::sync::{Arc, LazyLock};

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use chrono::{DateTime, SecondsFormat};
use futures_util::stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::api::App;
use crate::api::answer_stream::{JsonLine, StreamItem};
use crate::api::body::{FieldGroup, KnownFields};
use crate::api::error::ApiError;
use crate::api::fields;
use crate::api::json::json;
use crate::api::model_request::ModelRequest;
use crate::model::{Card, ServedKind, ServedModel};
use crate::reasoning::ReasoningFormat;

/// The version of Ollama whose API this is. Clients require a least one.
const API_VERSION: &str = "0.13.0";
/// The tag that Ollama adds to a name without one.
const TAG: &str = ":latest";
/// A time that does not come: models stay in memory until it is needed.
const NEVER: u64 = 253_370_764_800;

/// The version of the API.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[schemars(rename = "OllamaVersion")]
pub(crate) struct Version {
    version: &'static str,
}

/// The models.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "OllamaTags")]
pub(crate) struct Tags {
    models: Vec<Listed>,
}

/// A model in a list.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "OllamaListed")]
struct Listed {
    name: String,
    model: String,
    /// The time at which serving began, as in RFC 3339.
    modified_at: String,
    /// A hash of the name and that time.
    digest: String,
    /// Bytes of the parameters as f32; how they are stored may differ.
    size: u64,
    details: Details,
}

/// Sizes of a model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "OllamaDetails")]
struct Details {
    family: String,
    families: Vec<String>,
    /// The number of parameters, such as `135M`.
    parameter_size: String,
}

/// The models that are running.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "OllamaRunningModels")]
pub(crate) struct Running {
    models: Vec<RunningModel>,
}

/// A model that is running.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "OllamaRunning")]
struct RunningModel {
    #[serde(flatten)]
    listed: Listed,
    /// A time far away.
    expires_at: String,
    /// Always 0: memory of devices is not counted.
    size_vram: u64,
    context_length: usize,
}

/// The fields of a request for the description of a model.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaShow")]
pub(crate) struct Show {
    /// The name or an alias of the model; `:latest` after it has no effect. Required, unless the request has `name`.
    model: Option<String>,
    /// The same as `model`, which takes precedence.
    name: Option<String>,
}

/// The description of a model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "OllamaShown")]
pub(crate) struct Shown {
    /// The chat template in Jinja; empty if the model has none.
    template: String,
    details: Details,
    /// Sizes of the model, under the names of GGUF.
    model_info: Map<String, Value>,
    capabilities: Vec<&'static str>,
    modified_at: String,
}

/// The fields of a request to fetch a model.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaPull")]
pub(crate) struct Pull {
    /// The name or an alias of a served model; others are not fetched. Required, unless the request has `name`.
    model: Option<String>,
    /// The same as `model`, which takes precedence.
    name: Option<String>,
    /// False to send the answer as one object.
    #[schemars(extend("default" = true))]
    stream: Option<bool>,
}

/// The answer to a request to fetch a model.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[schemars(rename = "OllamaPulled")]
pub(crate) struct Pulled {
    status: &'static str,
}

impl FieldGroup for Show {}
impl FieldGroup for Pull {}

static SHOW: LazyLock<KnownFields<(Show,)>> =
    LazyLock::new(|| KnownFields::new(&fields::OLLAMA_SHOW));
static PULL: LazyLock<KnownFields<(Pull,)>> =
    LazyLock::new(|| KnownFields::new(&fields::OLLAMA_PULL));

/// The name without Ollama's tag, unless a model is called by it.
pub(super) fn without_tag<'a>(app: &App, name: &'a str) -> &'a str {
    match app.model(name) {
        Ok(_) => name,
        Err(_) => name.strip_suffix(TAG).unwrap_or(name),
    }
}

/// A Unix time in seconds, as in RFC 3339.
pub(super) fn timestamp(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    let time = DateTime::from_timestamp(seconds, 0).unwrap_or_default();
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Returns the version.
pub(crate) async fn version() -> Json<Version> {
    let version = API_VERSION;
    Json(Version { version })
}

/// Lists all models, each followed by its aliases.
pub(crate) async fn tags(State(app): State<App>) -> Result<Json<Tags>, ApiError> {
    let models = listed(&app, |listed, _| listed).await?;
    Ok(Json(Tags { models }))
}

/// Lists the models as running: they are loaded when they are needed.
pub(crate) async fn ps(State(app): State<App>) -> Result<Json<Running>, ApiError> {
    let running = |listed, model: &ServedModel| RunningModel {
        listed,
        expires_at: timestamp(NEVER),
        size_vram: 0,
        context_length: model.worker.limits().context,
    };
    let models = listed(&app, running).await?;
    Ok(Json(Running { models }))
}

async fn listed<T: Send + 'static>(
    app: &App,
    describe: impl Fn(Listed, &ServedModel) -> T + Send + 'static,
) -> Result<Vec<T>, ApiError> {
    let models = app.models().to_vec();
    let describe_all = move || {
        let names = |model: &Arc<ServedModel>| {
            let card = (model.card)();
            let names = std::iter::once(&model.name).chain(&model.aliases);
            let listed = names.map(|name| describe(Listed::new(name, model, &card), model));
            listed.collect::<Vec<T>>()
        };
        models.iter().flat_map(names).collect()
    };
    // Runs off the async threads, because a card reads a run's events from disk.
    app.jobs()
        .run(0, move |_| describe_all())
        .await
        .map_err(ApiError::from)
}

/// Finds the model of a request.
fn named(request: &ModelRequest, name: Option<String>) -> Result<Arc<ServedModel>, ApiError> {
    let name = name.ok_or_else(|| ApiError::field("model", "must name a model"))?;
    request.any_model(without_tag(&request.app, &name))
}

/// Describes a model.
pub(crate) async fn show(mut request: ModelRequest) -> Result<Response, ApiError> {
    let (Show { model, name },) = request.read(&SHOW).await?;
    let model = named(&request, model.or(name))?;
    let describe = move || Shown::new(&model, &(model.card)());
    let shown = request.app.jobs().run(0, move |_| describe()).await?;
    json(&request.app, shown, request.account).await
}

/// Answers a request to fetch a model that is there.
pub(crate) async fn pull(mut request: ModelRequest) -> Result<Response, ApiError> {
    let (Pull {
        model,
        name,
        stream,
    },) = request.read(&PULL).await?;
    named(&request, model.or(name))?;
    let status = "success";
    match stream {
        Some(false) => json(&request.app, Pulled { status }, request.account).await,
        _ => {
            let statuses = ["pulling manifest", status];
            let lines = statuses.map(|status| Ok(JsonLine::new(&Pulled { status })));
            Ok(JsonLine::response(stream::iter(lines)))
        }
    }
}

impl Listed {
    fn new(name: &str, model: &ServedModel, card: &Card) -> Self {
        let identity = format!("{name} {}", model.created);
        Self {
            name: name.to_owned(),
            model: name.to_owned(),
            modified_at: timestamp(model.created),
            digest: blake3::hash(identity.as_bytes()).to_hex().to_string(),
            size: card.parameters * size_of::<f32>() as u64,
            details: Details::new(card),
        }
    }
}

impl Details {
    fn new(card: &Card) -> Self {
        Self {
            family: card.family.clone(),
            families: vec![card.family.clone()],
            parameter_size: counted(card.parameters),
        }
    }
}

/// A number of parameters with three digits, such as `135M`.
fn counted(parameters: u64) -> String {
    let units = [(1e9, "B"), (1e6, "M"), (1e3, "K")];
    let parameters = parameters as f64;
    let unit = units.iter().find(|(size, _)| parameters >= *size);
    let &(size, unit) = unit.unwrap_or(&(1.0, ""));
    let count = parameters / size;
    match count {
        100.0.. => format!("{count:.0}{unit}"),
        10.0.. => format!("{count:.1}{unit}"),
        _ => format!("{count:.2}{unit}"),
    }
}

impl Shown {
    fn new(model: &ServedModel, card: &Card) -> Self {
        let sizes = model.worker.sizes();
        let template = model
            .chat
            .as_ref()
            .map(|chat| chat.encoder.template().source());
        let is_text = !matches!(model.kind, ServedKind::Encoder(_));
        let reasons = template.and_then(ReasoningFormat::of_template).is_some();
        let capabilities = [
            (is_text, "completion"),
            (is_text && model.tool_format().is_some(), "tools"),
            (is_text && reasons, "thinking"),
            (
                !matches!(model.kind, ServedKind::EncoderDecoder(_)),
                "embedding",
            ),
        ];
        let family = &card.family;
        let info = json!({
            "general.architecture": family,
            "general.parameter_count": card.parameters,
            format!("{family}.context_length"): model.worker.limits().context,
            format!("{family}.embedding_length"): sizes.d_model,
            format!("{family}.block_count"): sizes.n_layers,
            format!("{family}.attention.head_count"): sizes.heads,
            format!("{family}.vocab_size"): sizes.vocab_size,
        });
        let capabilities = capabilities.into_iter().filter(|(is_able, _)| *is_able);
        Self {
            template: template.unwrap_or_default().to_owned(),
            details: Details::new(card),
            model_info: info.as_object().cloned().unwrap_or_default(),
            capabilities: capabilities.map(|(_, name)| name).collect(),
            modified_at: timestamp(model.created),
        }
    }
}
