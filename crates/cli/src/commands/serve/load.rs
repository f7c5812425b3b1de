//! Loads the models to serve.

use burn::tensor::Device;
use bytesize::ByteSize;
use emberlm_checkpoint::{EncoderDecoderModel, EncoderModel, ModelKind};
use emberlm_kernels::Backend;
use emberlm_model::{WeightFormat, count};
use emberlm_serve::{
    EncoderDecoderPlan, EncoderPlan, LoadPlan, Loaded, Place, Reload, ServedModel,
};
use indicatif::HumanCount;

use super::bases::Bases;
use super::card::CardSource;
use super::follow;
use super::log::Log;
use super::memory;
use super::models::ModelSpec;
use crate::cache_arg;
use crate::console;
use crate::error::{CliError, warn};
use crate::memory_guard::MemoryGuard;
use crate::model;
use crate::opened_model::OpenedModel;
use crate::progress;
use crate::run_folders::is_run;
use crate::sandbox;

/// Loads all models and starts their threads. Everything that does not need weights is checked for all models
/// first. With `shared`, models that are not followed share that much memory and are unloaded to make room.
pub fn all<B: Backend>(
    specs: &[ModelSpec],
    shared: Option<ByteSize>,
    guard: MemoryGuard,
    device: &Device<B>,
    log: &Log,
) -> Result<Vec<ServedModel>, CliError> {
    // Names the model that an error refers to.
    let about = |spec: &ModelSpec| {
        let name = (specs.len() > 1).then(|| spec.options.name.clone());
        move |error: CliError| match name {
            Some(name) => error.within(&name),
            None => error,
        }
    };
    let mut models = Vec::new();
    for spec in specs {
        models.push(open(spec).map_err(about(spec))?);
    }
    let mut plans = Vec::new();
    for (spec, model) in specs.iter().zip(&models) {
        plans.push(plan(model, spec).map_err(about(spec))?);
    }
    let works = memory::works::<B>(specs, &plans);
    let places = match shared {
        None => {
            memory::check(&works, guard)?;
            specs.iter().map(|_| None).collect()
        }
        Some(bytes) => memory::places(specs, &works, bytes, guard)?,
    };
    let mut served = Vec::new();
    let adapts = |plan: &Plan<'_>| match plan {
        Plan::Decoder(plan) => plan.model().has_adapter(),
        Plan::Encoder(_) | Plan::EncoderDecoder(_) => false,
    };
    let mut bases = Bases::<B>::new(plans.iter().any(adapts));
    for ((spec, plan), place) in specs.iter().zip(plans).zip(places) {
        // Waits until other models have made room.
        place.iter().for_each(Place::enter);
        let loaded = match plan {
            Plan::Decoder(plan) => load::<B>(spec, *plan, place, &mut bases, device, log),
            Plan::Encoder(plan) => load_encoder::<B>(*plan, place, device, log),
            Plan::EncoderDecoder(plan) => load_encoder_decoder::<B>(*plan, place, device, log),
        };
        served.push(loaded.map_err(about(spec))?);
    }
    Ok(served)
}

/// A model with its checked serving options.
pub enum Plan<'a> {
    Decoder(Box<LoadPlan<'a>>),
    Encoder(Box<EncoderPlan<'a>>),
    EncoderDecoder(Box<EncoderDecoderPlan<'a>>),
}

/// Opens a model to serve, and waits for the first checkpoint of a run that is followed.
fn open(spec: &ModelSpec) -> Result<OpenedModel, CliError> {
    let path = &spec.path;
    let kind = ModelKind::of(path);
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
            let hint = format!("serve its newest checkpoint: emberlm serve {shown}");
            return Err(CliError::new(message).hint(hint));
        }
        if spec.follows {
            return Err(follow::no_run(path));
        }
    } else if spec.follows {
        follow::wait(path)?;
    }
    OpenedModel::open(path)
}

fn plan<'a>(model: &'a OpenedModel, spec: &ModelSpec) -> Result<Plan<'a>, CliError> {
    let options = spec.options.clone();
    Ok(match model {
        OpenedModel::Decoder(model) => Plan::Decoder(Box::new(LoadPlan::new(model, options)?)),
        OpenedModel::Encoder(model) => Plan::Encoder(Box::new(EncoderPlan::new(model, options)?)),
        OpenedModel::EncoderDecoder(model) => {
            Plan::EncoderDecoder(Box::new(EncoderDecoderPlan::new(model, options)?))
        }
    })
}

/// Loads a model again after it was unloaded from its place; `None` without a place.
fn reload<M>(
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

/// Loads an encoder's weights and starts its thread.
fn load_encoder<B: Backend>(
    plan: EncoderPlan<'_>,
    place: Option<Place>,
    device: &Device<B>,
    log: &Log,
) -> Result<ServedModel, CliError> {
    let model = plan.model();
    let sign = progress::loading(model.hugging_face().path());
    let embedder = model.embedder::<B>(device)?;
    drop(sign);
    let (path, on) = (model.hugging_face().path().to_owned(), device.clone());
    let again = move || Ok(EncoderModel::open(&path)?.embedder::<B>(&on)?);
    let reload = reload(place, &plan.options().name, log, again);
    let served = plan.load(embedder, reload)?;
    console::note(format_args!(
        "{}{}: {}, {} parameters; texts of at most {} tokens; it embeds only",
        served.name,
        aliases(&served),
        model.about(),
        HumanCount(parameters(model.config().parameters())),
        HumanCount(served.worker.limits().context as u64),
    ));
    Ok(served)
}

/// Loads an encoder–decoder's weights and starts its thread.
fn load_encoder_decoder<B: Backend>(
    plan: EncoderDecoderPlan<'_>,
    place: Option<Place>,
    device: &Device<B>,
    log: &Log,
) -> Result<ServedModel, CliError> {
    let model = plan.model();
    plan.ignored().iter().for_each(|ignored| warn(ignored));
    let sign = progress::loading(model.hugging_face().path());
    let weights = model.load::<B>(device)?;
    drop(sign);
    let (path, on) = (model.hugging_face().path().to_owned(), device.clone());
    let again = move || Ok(EncoderDecoderModel::open(&path)?.load::<B>(&on)?);
    let reload = reload(place, &plan.options().name, log, again);
    let served = plan.load(weights, Some(sandbox::grammars()), reload)?;
    let limits = served.worker.limits();
    console::note(format_args!(
        "{}{}: {}, {} parameters; slots: {}, sources and targets of at most {} tokens{}",
        served.name,
        aliases(&served),
        model.about(),
        HumanCount(parameters(model.config().parameters())),
        limits.slots,
        HumanCount(limits.context as u64),
        chats(&served),
    ));
    Ok(served)
}

fn parameters(count: u128) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// The aliases of a model, in parentheses.
fn aliases(served: &ServedModel) -> String {
    match &served.aliases[..] {
        [] => String::new(),
        aliases => format!(" (also {})", aliases.join(", ")),
    }
}

fn chats(served: &ServedModel) -> &'static str {
    match served.chat {
        Some(_) => "; chat is supported",
        None => "",
    }
}

/// Loads a model's weights and starts its thread. For a followed run, also starts the thread that follows it.
fn load<B: Backend>(
    spec: &ModelSpec,
    plan: LoadPlan<'_>,
    place: Option<Place>,
    bases: &mut Bases<B>,
    device: &Device<B>,
    log: &Log,
) -> Result<ServedModel, CliError> {
    let (path, model) = (&spec.path, plan.model());
    plan.ignored().iter().for_each(|ignored| warn(ignored));
    let cache = plan.options().cache;
    let decoder = match &place {
        // Adapters of one base model share its weights. A model that is unloaded has its own.
        None => {
            let base = model.base()?;
            let weights = spec.weights.unwrap_or_else(|| bases.format(model));
            let base = bases.decoder(base.as_ref().unwrap_or(model), weights, device)?;
            let adapted = model.add_adapter(base)?.with_fused_adapters();
            adapted.with_cache_format(cache)?
        }
        Some(_) => model::decoder_in::<B>(model, spec.weights, cache, device)?,
    };
    let (reopen, on, weights) = (model.reopen(), device.clone(), spec.weights);
    let again = move || model::decoder_in::<B>(&reopen()?, weights, cache, &on);
    let reload = reload(place, &plan.options().name, log, again);
    let Loaded {
        mut served,
        replacer,
        cache_bytes,
    } = plan.load(decoder, Some(sandbox::grammars()), reload)?;
    let limits = served.worker.limits();
    console::note(format_args!(
        "{}{}: {}, {} parameters; slots: {} of {} tokens ({}){}",
        served.name,
        aliases(&served),
        model.about()?,
        HumanCount(count::parameters(model.config()).total as u64),
        limits.slots,
        HumanCount(limits.context as u64),
        ByteSize(cache_bytes as u64),
        chats(&served),
    ));
    let card = CardSource::new(path, spec.follows, model)?;
    served.card = Box::new(move || card.card());
    if spec.follows {
        follow::start(
            path.clone(),
            (spec.weights, cache),
            device.clone(),
            replacer,
            log.clone(),
        )?;
    }
    Ok(served)
}
