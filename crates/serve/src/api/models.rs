//! `GET /v1/models`: the served models.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use emberlm_generate::SamplingDefaults;
use schemars::JsonSchema;
use serde::Serialize;

use super::App;
use super::conversation::ReasoningControls;
use super::error::ApiError;
use crate::model::{Card, ServedKind, ServedModel};

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
    aliases: Vec<String>,
    /// The name of the model that it is an adapter of.
    adapter_of: Option<String>,
    #[serde(flatten)]
    kind: PageKind,
    chat: bool,
    /// The controls of its reasoning in chats.
    reasoning: ReasoningControls,
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

/// The kind of a model.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum PageKind {
    Decoder,
    EncoderDecoder,
    Encoder {
        /// The labels of its classifier; none if it has none.
        labels: Vec<String>,
    },
}

impl PageModel {
    /// Describes a model that is one of `models`.
    fn new(model: &ServedModel, models: &[Arc<ServedModel>]) -> Self {
        let worker = &model.worker;
        let sizes = worker.sizes();
        let is_base = |other: &&Arc<ServedModel>| {
            other.worker.adapter.is_none() && other.worker.shares_engine(worker)
        };
        let base = models.iter().find(is_base);
        let base = base.filter(|_| worker.adapter.is_some());
        let template = model.chat.as_ref().map(|chat| chat.encoder.template());
        Self {
            id: model.name.clone(),
            aliases: model.aliases.clone(),
            adapter_of: base.map(|base| base.name.clone()),
            kind: match &model.kind {
                ServedKind::Decoder { .. } => PageKind::Decoder,
                ServedKind::EncoderDecoder(_) => PageKind::EncoderDecoder,
                ServedKind::Encoder(encoder) => PageKind::Encoder {
                    labels: (encoder.classifier.iter())
                        .flat_map(|classifier| classifier.labels.clone())
                        .collect(),
                },
            },
            chat: model.chat.is_some(),
            reasoning: template.map_or_else(Default::default, ReasoningControls::of_template),
            context: worker.limits().context,
            vocab_size: sizes.vocab_size,
            layers: sizes.n_layers,
            d_model: sizes.d_model,
            heads: sizes.heads,
            sampling: model.sampling,
            card: (model.card)(),
        }
    }
}

/// The descriptions of the models for the page.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PageModels {
    models: Vec<PageModel>,
}

/// Describes all models for the page.
pub(crate) async fn for_page(State(app): State<App>) -> Result<Json<PageModels>, ApiError> {
    let models = app.models().to_vec();
    let describe_all = move || {
        let describe = |model: &Arc<ServedModel>| PageModel::new(model, &models);
        models.iter().map(describe).collect()
    };
    // Runs off the async threads, because a card reads a run's events from disk.
    let models = app.jobs().run(0, move |_| describe_all()).await?;
    Ok(Json(PageModels { models }))
}
