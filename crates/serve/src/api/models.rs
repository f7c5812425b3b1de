//! `GET /v1/models`: which models there are.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::task::spawn_blocking;

use super::App;
use super::error::ApiError;
use crate::model::{Card, ServedModel};

/// A model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Listed {
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    /// Tokens of its context here (vLLM's name for it).
    max_model_len: usize,
}

/// All of them.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct List {
    object: &'static str,
    data: Vec<Listed>,
}

impl From<&ServedModel> for Listed {
    fn from(model: &ServedModel) -> Self {
        Self {
            id: model.name.clone(),
            object: "model",
            created: model.created,
            owned_by: "emberlm",
            max_model_len: model.worker.config().capacity,
        }
    }
}

/// All of them.
pub(crate) async fn all(State(app): State<App>) -> Json<List> {
    let models = app.models().iter();
    Json(List {
        object: "list",
        data: models.map(|model| Listed::from(&**model)).collect(),
    })
}

/// One by its name.
pub(crate) async fn one(
    State(app): State<App>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Listed>, ApiError> {
    let Path(name) = name.map_err(|error| ApiError::invalid(error.body_text()).at("model"))?;
    Ok(Json(Listed::from(&*app.model(&name)?)))
}

/// What the page shows of a model.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Shown {
    id: String,
    chat: bool,
    context: usize,
    vocab_size: usize,
    layers: usize,
    d_model: usize,
    heads: usize,
    #[serde(flatten)]
    card: Card,
}

/// What the page shows of them.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AllShown {
    models: Vec<Shown>,
}

/// What the page shows of them.
pub(crate) async fn shown(State(app): State<App>) -> Result<Json<AllShown>, ApiError> {
    let models = app.models().to_vec();
    let show = move || {
        let shown = |model: &Arc<ServedModel>| {
            let config = model.worker.model();
            Shown {
                id: model.name.clone(),
                chat: model.chat.is_some(),
                context: model.worker.config().capacity,
                vocab_size: config.vocab_size,
                layers: config.n_layers,
                d_model: config.d_model,
                heads: config.heads,
                card: (model.card)(),
            }
        };
        models.iter().map(shown).collect()
    };
    // A run's events are read from its folder.
    let models = spawn_blocking(show).await;
    let models = models.map_err(|_| ApiError::internal("the models could not be described"))?;
    Ok(Json(AllShown { models }))
}
