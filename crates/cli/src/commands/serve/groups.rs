//! Groups of served models with one engine each: a base model and adapters of it, whose requests share batches.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use emberlm_checkpoint::{BaseModel, Model, ModelError, ModelKind};
use emberlm_generate::EngineConfig;
use emberlm_kernels::Backend;
use emberlm_model::{Transformer, WeightFormat};
use emberlm_serve::{LoadPlan, ServedKind, ServedModel};

use super::bases::Bases;
use super::load::{Opened, Plan};
use super::models::ModelSpec;
use crate::error::CliError;
use crate::model;
use crate::opened_model::OpenedModel;
use crate::shell::shell_path;
use crate::weights_arg::Formats;

/// The properties that models of one engine have in common.
#[derive(PartialEq)]
pub struct EngineKey {
    base: PathBuf,
    formats: Formats,
    queue: usize,
    draft: Option<PathBuf>,
    config: EngineConfig,
}

impl EngineKey {
    /// The path of the base model.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// Returns true if a running engine with this key can run models with `other`, whose format of weights is `requested`.
    pub fn admits(&self, other: &Self, requested: Option<WeightFormat>) -> bool {
        let formats = Formats {
            weights: requested.or(self.formats.weights),
            ..other.formats
        };
        let draft_and_config = (&other.draft, &other.config) == (&self.draft, &self.config);
        let same = (&other.base, other.queue);
        (&self.base, self.queue) == same && draft_and_config && self.formats == formats
    }
}

/// Models of one engine, by their numbers. Without a key, none can be added.
pub type Group = (Option<EngineKey>, Vec<usize>);

/// Divides the models, by their numbers, into groups with one engine each: a base model and adapters of it with the same
/// settings. A run that is followed, and an adapter with modules or biases of its base, have their own engines.
pub fn of<B: Backend>(specs: &[ModelSpec], plans: &[Plan<'_>], bases: &Bases<B>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (number, (spec, plan)) in specs.iter().zip(plans).enumerate() {
        let key = match plan {
            Plan::Generator(plan) if can_share(spec, plan.model()) => Some(key(spec, plan, bases)),
            _ => None,
        };
        let is_adapter = |number: usize| has_adapter(&plans[number]);
        let mut known = groups.iter_mut().filter(|(of, members)| {
            // A model that is served under two names has two engines.
            let is_new = is_adapter(number) || members.iter().all(|&other| is_adapter(other));
            key.is_some() && *of == key && is_new
        });
        match known.next() {
            Some((_, members)) => members.push(number),
            None => groups.push((key, vec![number])),
        }
    }
    groups
}

/// The path of the decoder without an adapter, if there is exactly one that is not followed among the models to load and
/// those that are `running`.
pub fn only_base(
    specs: &[ModelSpec],
    opened: &[Opened],
    running: &[Arc<ServedModel>],
) -> Option<PathBuf> {
    let bases = specs.iter().zip(opened).filter_map(|(spec, opened)| {
        let Opened::Model(OpenedModel::Decoder(model)) = opened else {
            return None;
        };
        (!spec.follows && !model.has_adapter()).then(|| model.path().to_owned())
    });
    let is_base = |model: &&Arc<ServedModel>| {
        let is_decoder = matches!(model.kind, ServedKind::Decoder { .. });
        is_decoder && !model.source.follows && model.source.base.is_none()
    };
    let running = running.iter().filter(is_base);
    let running = running.map(|model| model.source.path.clone());
    let mut bases: Vec<PathBuf> = bases.chain(running).collect();
    bases.sort();
    bases.dedup();
    match bases.len() {
        1 => bases.pop(),
        _ => None,
    }
}

/// Opens an adapter whose base model is not where it records it, as an adapter of `base`.
///
/// # Errors
/// The `error` that it has no base model if there is no `base`, or the adapter cannot be read.
pub fn open_adapter(
    path: &Path,
    base: Option<&Path>,
    error: ModelError,
) -> Result<OpenedModel, CliError> {
    let base = base.ok_or_else(|| {
        let hint = format!(
            "serve its base model, too, and no other: emberlm serve MODEL {}",
            shell_path(path)
        );
        CliError::new(error.to_string()).hint(hint)
    })?;
    let model = model::open(base)?.with_adapter(path)?;
    Ok(OpenedModel::Decoder(Box::new(model)))
}

/// True if the model is an adapter and its base.
pub fn has_adapter(plan: &Plan<'_>) -> bool {
    match plan {
        Plan::Generator(plan) => plan.model().has_adapter(),
        Plan::Encoder(_) => false,
    }
}

/// True if other models can be served by the engine of a model.
fn can_share(spec: &ModelSpec, model: &Model) -> bool {
    !spec.follows && model.kind() == ModelKind::Decoder && !model.has_whole_parameters()
}

fn key<B: Backend>(spec: &ModelSpec, plan: &LoadPlan<'_>, bases: &Bases<B>) -> EngineKey {
    let (model, options) = (plan.model(), plan.options());
    EngineKey {
        base: base_path(model),
        formats: bases.formats(spec, model),
        queue: options.queue,
        draft: spec.draft.clone(),
        config: plan.engine(),
    }
}

/// The absolute path of the model's base; of the model itself without an adapter, or with one of PEFT, which is opened with
/// its base.
pub fn base_path(model: &Model) -> PathBuf {
    let path: &Path = match model.adapter() {
        Some(adapter) => &adapter.base.path,
        None => model.path(),
    };
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Loads the weights of the models' base by `load`. The adapter of a single model is added to them, those of several to the
/// bank in their order. `about` adds the model's number to an error.
///
/// # Errors
/// The base model is no longer there, the weights cannot be read, or an adapter is for another model.
pub fn decoder<B: Backend>(
    models: &[&Model],
    load: impl FnOnce(&Model) -> Result<Transformer<B>, CliError>,
    about: impl Fn(usize, CliError) -> CliError,
) -> Result<Transformer<B>, CliError> {
    let first = models.iter().position(|model| !model.has_adapter());
    let first = first.unwrap_or(0);
    let opened = models[first]
        .base()
        .map_err(|error| about(first, error.into()))?;
    let base = opened.as_ref().unwrap_or(models[first]);
    let weights = load(base).map_err(|error| about(first, error))?;
    if let [model] = models {
        let adapted = model.add_adapter(weights);
        let adapted = adapted.map_err(|error| about(first, error.into()))?;
        return Ok(adapted.with_fused_adapters());
    }
    let mut decoder = weights.clone();
    add_to_bank(&mut decoder, base, models, about)?;
    Ok(decoder)
}

/// Adds the adapters of the models to a decoder's bank, in their order. `base` is the model of the decoder's weights.
///
/// # Errors
/// The weights cannot be read, or an adapter is for another model.
pub fn add_to_bank<B: Backend>(
    decoder: &mut Transformer<B>,
    base: &Model,
    models: &[&Model],
    about: impl Fn(usize, CliError) -> CliError,
) -> Result<(), CliError> {
    // Copies share the memory of the weights.
    let weights = decoder.clone();
    // Hashing the weights of a large base for each of its adapters would take long.
    let mut checked: Vec<&BaseModel> = Vec::new();
    for (number, model) in models.iter().enumerate() {
        if !model.has_adapter() {
            continue;
        }
        let mut add = || -> Result<(), CliError> {
            if let Some(adapter) = model.adapter()
                && !checked.contains(&&adapter.base)
            {
                adapter.base.check(base)?;
                checked.push(&adapter.base);
            }
            decoder.add_to_bank(&model.add_adapter(weights.clone())?)?;
            Ok(())
        };
        add().map_err(|error| about(number, error))?;
    }
    Ok(())
}
