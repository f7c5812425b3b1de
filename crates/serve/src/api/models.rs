//! `GET /v1/models`: the served models.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use emberlm_generate::SamplingDefaults;
use schemars::JsonSchema;
use serde::Serialize;

use super::App;
use super::error::ApiError;
use crate::model::{Card, ServedModel, Task};

/// A model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Listed {
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    /// The name of the model that an alias stands for; the model's own name for the model itself (vLLM's field).
    root: String,
    /// Tokens of its context here (vLLM's name for it).
    max_model_len: usize,
}

/// All of them.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct List {
    object: &'static str,
    data: Vec<Listed>,
}

impl Listed {
    /// Describes a model under one of its names.
    fn new(model: &ServedModel, id: &str) -> Self {
        Self {
            id: id.to_owned(),
            object: "model",
            created: model.created,
            owned_by: "emberlm",
            root: model.name.clone(),
            max_model_len: model.worker.limits().context,
        }
    }
}

/// Lists all models, each followed by its aliases.
pub(crate) async fn all(State(app): State<App>) -> Json<List> {
    let models = app.models();
    let listed = models.iter().flat_map(|model| {
        let names = std::iter::once(&model.name).chain(&model.aliases);
        names.map(|name| Listed::new(model, name))
    });
    Json(List {
        object: "list",
        data: listed.collect(),
    })
}

/// Describes one model by its name or an alias.
pub(crate) async fn one(
    State(app): State<App>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Listed>, ApiError> {
    let Path(name) = name.map_err(|error| ApiError::invalid(error.body_text()).at("model"))?;
    let model = app.model(&name)?;
    Ok(Json(Listed::new(&model, &name)))
}

/// The description of a model for the page.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PageModel {
    id: String,
    chat: bool,
    context: usize,
    vocab_size: usize,
    layers: usize,
    d_model: usize,
    heads: usize,
    /// The model's recommended sampling settings.
    sampling: SamplingDefaults,
    #[serde(flatten)]
    card: Card,
}

/// The descriptions of the models for the page.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PageModels {
    models: Vec<PageModel>,
}

/// Describes the models for the page: those that continue texts.
pub(crate) async fn for_page(State(app): State<App>) -> Result<Json<PageModels>, ApiError> {
    let mut models = app.models().to_vec();
    models.retain(|model| model.kind.supports(Task::Continuation));
    let describe_all = move || {
        let describe = |model: &Arc<ServedModel>| {
            let sizes = model.worker.sizes();
            PageModel {
                id: model.name.clone(),
                chat: model.chat.is_some(),
                context: model.worker.limits().context,
                vocab_size: sizes.vocab_size,
                layers: sizes.n_layers,
                d_model: sizes.d_model,
                heads: sizes.heads,
                sampling: model.sampling,
                card: (model.card)(),
            }
        };
        models.iter().map(describe).collect()
    };
    // Runs off the async threads, because a card reads a run's events from disk.
    let models = app.jobs().run(0, move |_| describe_all()).await?;
    Ok(Json(PageModels { models }))
}
