//! Loads the models to serve.

use burn::tensor::Device;
use bytesize::ByteSize;
use emberlm_checkpoint::{EncoderModel, Model, ModelError, ModelKind, kind_of};
use emberlm_kernels::Backend;
use emberlm_model::WeightFormat;
use emberlm_model::adapter::ADAPTER_CONFIG_FILE;
use emberlm_serve::{EncoderPlan, LoadPlan, Place, Reload, ServedKind, ServedModel};
use indicatif::HumanCount;

use super::bases::Bases;
use super::generators::{self, Member, named};
use super::log::Log;
use super::memory;
use super::models::ModelSpec;
use super::{follow, groups};
use crate::cache_arg;
use crate::console;
use crate::draft_model;
use crate::error::CliError;
use crate::memory_guard::MemoryGuard;
use crate::opened_model::OpenedModel;
use crate::progress;
use crate::run_folders::is_run;
use crate::shell::shell_path;

/// Loads all models and starts their threads. Everything that does not need weights is checked for all models
/// first. With `shared`, models that are not followed share that much memory and are unloaded to make room.
pub fn all<B: Backend>(
    specs: &[ModelSpec],
    shared: Option<ByteSize>,
    guard: MemoryGuard,
    device: &Device<B>,
    log: &Log,
) -> Result<Vec<ServedModel>, CliError> {
    let about = |spec| named(spec, specs.len() > 1);
    let mut opened = Vec::new();
    for spec in specs {
        opened.push(open(spec).map_err(about(spec))?);
    }
    let mut models = Vec::new();
    let base = groups::only_base(specs, &opened);
    for (spec, opened) in specs.iter().zip(opened) {
        let model = match opened {
            Opened::Model(model) => Ok(model),
            Opened::Adapter(error) => groups::open_adapter(&spec.path, base.as_deref(), error),
        };
        models.push(model.map_err(about(spec))?);
    }
    let mut plans = Vec::new();
    for (spec, model) in specs.iter().zip(&models) {
        plans.push(plan(model, spec).map_err(about(spec))?);
    }
    let mut bases = Bases::<B>::new(plans.iter().any(groups::has_adapter));
    let groups = groups::of(specs, &plans, &bases);
    // The model that stands for those of its engine: an adapter determines the format of its base's weights.
    let standing = |group: &Vec<usize>| {
        let adapter = group
            .iter()
            .find(|&&number| groups::has_adapter(&plans[number]));
        adapter.or(group.first()).copied().unwrap_or(0)
    };
    let standing = groups.iter().map(standing);
    let planned: Vec<_> = standing
        .map(|number| (&specs[number], &plans[number]))
        .collect();
    let works = memory::works::<B>(&planned);
    let places = match shared {
        None => {
            memory::check(&works.concat(), guard)?;
            groups.iter().map(|_| None).collect()
        }
        Some(bytes) => memory::places(&planned, &works, bytes, guard)?,
    };
    let mut plans: Vec<Option<Plan<'_>>> = plans.into_iter().map(Some).collect();
    let mut served = Vec::new();
    for (group, place) in groups.iter().zip(places) {
        // Waits until other models have made room.
        place.iter().for_each(Place::enter);
        let members = group.iter();
        let members = members.filter_map(|&number| Some((number, plans[number].take()?)));
        let members: Vec<_> = members.collect();
        served.extend(load_group(specs, members, place, &mut bases, device, log)?);
    }
    served.sort_by_key(|(number, _)| *number);
    Ok(served.into_iter().map(|(_, model)| model).collect())
}

/// Loads the models of one engine and starts its thread.
fn load_group<B: Backend>(
    specs: &[ModelSpec],
    members: Vec<(usize, Plan<'_>)>,
    place: Option<Place>,
    bases: &mut Bases<B>,
    device: &Device<B>,
    log: &Log,
) -> Result<Vec<(usize, ServedModel)>, CliError> {
    let several = specs.len() > 1;
    let mut generators = Vec::new();
    for (number, plan) in members {
        let spec = &specs[number];
        match plan {
            Plan::Generator(plan) => generators.push(Member {
                number,
                spec,
                plan: *plan,
                named: several,
            }),
            // An encoder has its own engine.
            Plan::Encoder(plan) => {
                let served = load_encoder::<B>(*plan, place, device, log);
                return Ok(vec![(number, served.map_err(named(spec, several))?)]);
            }
        }
    }
    generators::load(generators, place, bases, device, log)
}

/// A model with its checked serving options.
pub enum Plan<'a> {
    Generator(Box<LoadPlan<'a>>),
    Encoder(Box<EncoderPlan<'a>>),
}

/// A model, or an adapter.
pub enum Opened {
    Model(OpenedModel),
    /// An adapter in PEFT's format whose base model is not where it records it, and the error to open it.
    Adapter(ModelError),
}

/// Opens a model to serve, and waits for the first checkpoint of a run that is followed.
fn open(spec: &ModelSpec) -> Result<Opened, CliError> {
    let path = &spec.path;
    let kind = kind_of(path);
    cache_arg::check_kind(spec.options.cache, kind, path)?;
    if kind != ModelKind::Decoder {
        let shown = path.display();
        if let Some(packed) = spec.weights.filter(|format| *format != WeightFormat::F32) {
            let message = format!(
                "{shown} is an {}, whose weights are held in f32",
                kind.name()
            );
            let hint = format!("leave out --weights {} for it", packed.name());
            return Err(CliError::new(message).hint(hint));
        }
        if spec.follows && is_run(path) {
            let message = format!(
                "{shown} trains an {}, and --follow is for decoders",
                kind.name()
            );
            let path = shell_path(path);
            let hint = format!("serve its newest checkpoint: emberlm serve {path}");
            return Err(CliError::new(message).hint(hint));
        }
        if spec.follows {
            return Err(follow::no_run(path));
        }
    } else if spec.follows {
        follow::wait(path)?;
    } else if path.join(ADAPTER_CONFIG_FILE).exists() {
        return Ok(match Model::open(path) {
            Ok(model) => Opened::Model(OpenedModel::Decoder(Box::new(model))),
            Err(error @ ModelError::AdapterOnly { .. }) => Opened::Adapter(error),
            Err(error) => return Err(error.into()),
        });
    }
    OpenedModel::open(path).map(Opened::Model)
}

fn plan<'a>(model: &'a OpenedModel, spec: &ModelSpec) -> Result<Plan<'a>, CliError> {
    let options = spec.options.clone();
    if let (Some(draft), OpenedModel::Encoder(_) | OpenedModel::EncoderDecoder(_)) =
        (&spec.draft, model)
    {
        let (shown, kind) = (spec.path.display(), model.model().kind().named());
        let message = format!(
            "{shown} is {kind}, and a draft model ({}) is for decoders",
            draft.display()
        );
        return Err(CliError::new(message)
            .hint("with --config, give each decoder its draft model: draft = \"PATH\""));
    }
    Ok(match model {
        OpenedModel::Encoder(model) => Plan::Encoder(Box::new(EncoderPlan::new(model, options)?)),
        OpenedModel::Decoder(_) | OpenedModel::EncoderDecoder(_) => {
            let plan = LoadPlan::new(model.model(), options)?;
            Plan::Generator(Box::new(match &spec.draft {
                Some(path) => {
                    let draft = draft_model::open(path, &spec.path, Some(plan.tokenizer()))?;
                    plan.with_draft(draft)?
                }
                None => plan,
            }))
        }
    })
}

/// Loads a model again after it was unloaded from its place; `None` without a place.
pub fn reload<M>(
    place: Option<Place>,
    name: &str,
    log: &Log,
    load: impl Fn() -> Result<M, CliError> + Send + 'static,
) -> Option<Reload<M>> {
    let (name, log) = (name.to_owned(), log.clone());
    let load = move || {
        let model = load().map_err(|error| error.message().to_owned())?;
        log.note(format!("{name}: loaded again"));
        Ok(model)
    };
    place.map(|place| Reload {
        place,
        load: Box::new(load),
    })
}

/// The uses of an encoder, for the line about it.
fn encoder_uses(kind: &ServedKind) -> &'static str {
    let labels = match kind {
        ServedKind::Encoder(encoder) => encoder.classifier.as_ref(),
        ServedKind::Decoder { .. } | ServedKind::EncoderDecoder(_) => None,
    };
    match labels.map(|classifier| classifier.labels.len()) {
        None => "it embeds only",
        Some(1) => "it embeds, classifies and ranks documents",
        Some(_) => "it embeds and classifies",
    }
}

/// Loads an encoder's weights and starts its thread.
fn load_encoder<B: Backend>(
    plan: EncoderPlan<'_>,
    place: Option<Place>,
    device: &Device<B>,
    log: &Log,
) -> Result<ServedModel, CliError> {
    let model = plan.model();
    let sign = progress::loading(model.model().path());
    let embedder = model.embedder::<B>(device)?;
    drop(sign);
    let (reopen, on) = (model.model().reopen(), device.clone());
    let again = move || Ok(EncoderModel::of(reopen()?)?.embedder::<B>(&on)?);
    let reload = reload(place, &plan.options().name, log, again);
    let served = plan.load(embedder, reload)?;
    console::note(format_args!(
        "{}{}: {}, {} parameters; texts of at most {} tokens; {}",
        served.name,
        aliases(&served),
        model.model().about()?,
        HumanCount(parameters(model.config().parameters())),
        HumanCount(served.worker.limits().context as u64),
        encoder_uses(&served.kind),
    ));
    Ok(served)
}

fn parameters(count: u128) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// The aliases of a model, in parentheses.
pub fn aliases(served: &ServedModel) -> String {
    match &served.aliases[..] {
        [] => String::new(),
        aliases => format!(" (also {})", aliases.join(", ")),
    }
}

pub fn chats(served: &ServedModel) -> &'static str {
    match served.chat {
        Some(_) => "; chat is supported",
        None => "",
    }
}
