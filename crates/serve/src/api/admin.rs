//! `/admin/models`: loads and removes models for an administrator, who has a key of `--admin-key-file`. Also the requests by which
//! vLLM's clients load and remove adapters.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, LazyLock};

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use blake3::Hash;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::App;
use super::body::{FieldGroup, KnownFields};
use super::error::ApiError;
use super::fields;
use super::json::json;
use super::model_request::ModelRequest;
use crate::admin::{Admin, LoadRequest};
use crate::model::ServedModel;
use crate::model_entry::{MOST_ALIASES, MOST_NAME, MOST_PATH, ModelEntry};

/// The access of an administrator.
pub(super) struct Access {
    /// The hash of the key, as of that of clients.
    pub key: Hash,
    loads: SyncSender<LoadRequest>,
}

impl From<Admin> for Access {
    fn from(admin: Admin) -> Self {
        Self {
            key: blake3::hash(admin.key.as_bytes()),
            loads: admin.loads,
        }
    }
}

/// A served model, as an administrator sees it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct AdminModel {
    name: String,
    aliases: Vec<String>,
    /// The path of its files.
    path: String,
    /// For an adapter, the path of its base model.
    adapter_of: Option<String>,
    /// True if the newest checkpoint of a run is served.
    follow: bool,
    /// The name of the first model whose slots it shares. Null if it has its own.
    shares_slots_of: Option<String>,
    /// False while it is unloaded because other models need the memory (`serve --memory`).
    loaded: bool,
    /// Predicted bytes of weights, caches and temporary values. Null if they are counted with another model.
    memory: Option<u64>,
    /// Tokens of its context.
    context: usize,
    slots: usize,
    /// Prompts that run or wait.
    running: usize,
}

/// The served models, as an administrator sees them.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct AdminModels {
    models: Vec<AdminModel>,
}

/// A model that is no longer served.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Removed {
    name: String,
    /// Prompts that still run or wait. The memory is freed after the last one.
    running: usize,
}

/// An adapter to load, as in vLLM.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct LoadLora {
    /// The name that clients use.
    #[schemars(length(max = MOST_NAME))]
    lora_name: String,
    /// The path of the adapter.
    #[schemars(length(max = MOST_PATH))]
    lora_path: PathBuf,
}

/// An adapter to remove, as in vLLM.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct UnloadLora {
    /// The name of the adapter.
    #[schemars(length(max = MOST_NAME))]
    lora_name: String,
}

impl FieldGroup for ModelEntry {}
impl FieldGroup for LoadLora {}
impl FieldGroup for UnloadLora {}

static ENTRY: LazyLock<KnownFields<(ModelEntry,)>> =
    LazyLock::new(|| KnownFields::new(&fields::NONE));
static LOAD_LORA: LazyLock<KnownFields<(LoadLora,)>> =
    LazyLock::new(|| KnownFields::new(&fields::LOAD_LORA));
static UNLOAD_LORA: LazyLock<KnownFields<(UnloadLora,)>> =
    LazyLock::new(|| KnownFields::new(&fields::UNLOAD_LORA));

/// Lists the models.
pub(crate) async fn models(State(app): State<App>) -> Json<AdminModels> {
    let models = app.models();
    let models = models.iter().map(|model| AdminModel::new(model, &models));
    Json(AdminModels {
        models: models.collect(),
    })
}

/// Loads a model and answers when it is served.
pub(crate) async fn add(mut request: ModelRequest) -> Result<Response, ApiError> {
    let (entry,) = request.read(&ENTRY).await?;
    let added = load(&request.app, entry).await?;
    json(&request.app, added, request.account).await
}

/// Removes a model by its name.
pub(crate) async fn remove(
    State(app): State<App>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Removed>, ApiError> {
    let Path(name) = name.map_err(|error| ApiError::invalid(error.body_text()).at("name"))?;
    Ok(Json(unload(&app, &name)?))
}

/// Loads an adapter.
pub(crate) async fn load_lora(mut request: ModelRequest) -> Result<Response, ApiError> {
    let (fields,) = request.read(&LOAD_LORA).await?;
    let LoadLora {
        lora_name,
        lora_path,
    } = fields;
    let entry = ModelEntry {
        path: lora_path,
        name: Some(lora_name),
        ..ModelEntry::default()
    };
    let added = load(&request.app, entry).await?;
    json(&request.app, added, request.account).await
}

/// Removes an adapter.
pub(crate) async fn unload_lora(mut request: ModelRequest) -> Result<Response, ApiError> {
    let (UnloadLora { lora_name },) = request.read(&UNLOAD_LORA).await?;
    let removed = unload(&request.app, &lora_name)?;
    json(&request.app, removed, request.account).await
}

async fn load(app: &App, entry: ModelEntry) -> Result<AdminModel, ApiError> {
    check(&entry)?;
    let access = app.0.admin.as_ref().ok_or_else(ApiError::no_admin)?;
    let (answer, answered) = oneshot::channel();
    let sent = access.loads.try_send(LoadRequest { entry, answer });
    let ended = || ApiError::internal("the server no longer loads models");
    sent.map_err(|error| match error {
        TrySendError::Full(_) => {
            ApiError::busy("too many models wait to be loaded; try again later")
        }
        TrySendError::Disconnected(_) => ended(),
    })?;
    let name = answered.await.map_err(|_| ended())??;
    let model = app.model(&name)?;
    Ok(AdminModel::new(&model, &app.models()))
}

/// Checks the lengths and numbers that the description limits.
fn check(entry: &ModelEntry) -> Result<(), ApiError> {
    let names = entry
        .name
        .iter()
        .map(|name| ("name", name.len(), MOST_NAME));
    let aliases = entry.aliases.iter();
    let aliases = aliases.map(|alias| ("aliases", alias.len(), MOST_NAME));
    let template = entry.chat_template.iter();
    let template = template.map(|template| ("chat_template", template.len(), MOST_PATH));
    let draft = entry.draft.iter();
    let paths = draft
        .map(|draft| ("draft", draft))
        .chain([("path", &entry.path)]);
    let paths = paths.map(|(field, path)| (field, path.as_os_str().len(), MOST_PATH));
    let mut lengths = names.chain(aliases).chain(template).chain(paths);
    if let Some((field, _, most)) = lengths.find(|(_, length, most)| length > most) {
        let rule = format!("must have at most {most} bytes");
        return Err(ApiError::field(field, rule));
    }
    let numbers = [
        ("context", entry.context.map(NonZero::get)),
        ("slots", entry.slots.map(NonZero::get)),
        ("max_queue", entry.max_queue),
    ];
    let is_large = |number: usize| u32::try_from(number).is_err();
    if let Some((field, _)) = numbers
        .iter()
        .find(|(_, number)| number.is_some_and(is_large))
    {
        return Err(ApiError::field(
            *field,
            format!("must be at most {}", u32::MAX),
        ));
    }
    match entry.aliases.len() > MOST_ALIASES {
        true => Err(ApiError::field(
            "aliases",
            format!("must be at most {MOST_ALIASES} names"),
        )),
        false => Ok(()),
    }
}

fn unload(app: &App, name: &str) -> Result<Removed, ApiError> {
    let Some(model) = app.0.models.remove(name) else {
        return Err(app.unknown_model(name));
    };
    Ok(Removed {
        running: model.worker.requests(),
        name: model.name.clone(),
    })
}

impl AdminModel {
    fn new(model: &ServedModel, all: &[Arc<ServedModel>]) -> Self {
        let first = all
            .iter()
            .find(|other| other.worker.shares_engine(&model.worker));
        let shared = first.filter(|first| first.name != model.name);
        let shown = |path: &PathBuf| path.display().to_string();
        let limits = model.worker.limits();
        Self {
            name: model.name.clone(),
            aliases: model.aliases.clone(),
            path: shown(&model.source.path),
            adapter_of: model.source.base.as_ref().map(shown),
            follow: model.source.follows,
            shares_slots_of: shared.map(|first| first.name.clone()),
            loaded: model.worker.is_loaded(),
            memory: model.source.memory,
            context: limits.context,
            slots: limits.slots,
            running: model.worker.requests(),
        }
    }
}
