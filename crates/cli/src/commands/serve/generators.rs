//! Loads the models of one engine that generate tokens: a base model and adapters of it, or one model.

use burn::tensor::Device;
use bytesize::ByteSize;
use emberlm_checkpoint::{Model, ModelError, ModelKind};
use emberlm_kernels::Backend;
use emberlm_model::{Transformer, count};
use emberlm_serve::{LoadPlan, Place, ServedModel, Started, Weights, Worker};
use indicatif::HumanCount;

use super::bases::Bases;
use super::card::CardSource;
use super::load::{aliases, chats, reload};
use super::log::Log;
use super::models::ModelSpec;
use super::{follow, groups, prompt_cache};
use crate::console;
use crate::error::{CliError, warn};
use crate::model;
use crate::sandbox;
use crate::weights_arg::Formats;

/// A model to serve.
pub struct Member<'a> {
    /// Its number among the served models.
    pub number: usize,
    pub spec: &'a ModelSpec,
    pub plan: LoadPlan<'a>,
    /// True if errors name the model, because there are several.
    pub named: bool,
}

impl Member<'_> {
    /// Adds the model's name to an error.
    fn about(&self, error: CliError) -> CliError {
        named(self.spec, self.named)(error)
    }
}

/// Adds a model's name to an error if several models are served.
pub fn named(spec: &ModelSpec, several: bool) -> impl Fn(CliError) -> CliError {
    move |error| match several {
        true => error.within(&spec.options.name),
        false => error,
    }
}

/// Loads the weights of one engine's models and starts its thread. For a followed run, also starts the thread that follows
/// it. Returns the models with their numbers.
pub fn load<B: Backend>(
    members: Vec<Member<'_>>,
    place: Option<Place>,
    bases: &mut Bases<B>,
    device: &Device<B>,
    log: &Log,
) -> Result<Vec<(usize, ServedModel)>, CliError> {
    let Some(first) = members.first() else {
        return Ok(Vec::new());
    };
    let ignored = members.iter().flat_map(|member| member.plan.ignored());
    ignored.for_each(|ignored| warn(ignored));
    let models: Vec<&Model> = members.iter().map(|member| member.plan.model()).collect();
    let formats = bases.formats(first.spec, models[0]);
    let about = |number: usize, error| members[number].about(error);
    let decoder = match &place {
        // Adapters of one base model share its weights. A model that is unloaded has its own.
        None => {
            let load = |base: &Model| bases.decoder(base, formats, device);
            groups::decoder(&models, load, about)?
        }
        Some(_) => {
            let load = |base: &Model| model::decoder_in::<B>(base, formats, device);
            groups::decoder(&models, load, about)?
        }
    };
    let reopen: Vec<_> = models.iter().map(|model| model.reopen()).collect();
    let on = device.clone();
    let drafts = DraftWeights::of(first, bases);
    let draft = drafts.as_ref().map(|drafts| drafts.load(device));
    let weights = Weights {
        model: decoder,
        draft: draft.transpose()?,
    };
    let again = move || {
        let models: Result<Vec<Model>, _> = reopen.iter().map(|reopen| reopen()).collect();
        let models = models?;
        let models: Vec<&Model> = models.iter().collect();
        let load = |base: &Model| model::decoder_in::<B>(base, formats, &on);
        Ok(Weights {
            model: groups::decoder(&models, load, |_, error| error)?,
            draft: drafts.as_ref().map(|drafts| drafts.load(&on)).transpose()?,
        })
    };
    let names: Vec<&str> = members
        .iter()
        .map(|member| &*member.spec.options.name)
        .collect();
    let reload = reload(place, &names.join(", "), log, again);
    let cache = prompt_cache::of::<B>(first.spec, &first.plan, &models, formats, device, log);
    let cache = cache.map_err(|error| first.about(error))?;
    let started = first.plan.start(weights, reload, cache);
    let Started {
        worker,
        replacer,
        cache_bytes,
    } = started.map_err(|error| first.about(error.into()))?;
    if first.spec.follows {
        let formats = Formats {
            weights: first.spec.weights,
            ..formats
        };
        let run = first.spec.path.clone();
        follow::start(run, formats, device.clone(), replacer, log.clone())
            .map_err(|error| first.about(error))?;
    }
    let limits = worker.limits();
    let (slots, context) = (limits.slots, HumanCount(limits.context as u64));
    let mut capacity = match models[0].kind() {
        ModelKind::EncoderDecoder => {
            format!("slots: {slots}, sources and targets of at most {context} tokens")
        }
        ModelKind::Decoder | ModelKind::Encoder => {
            let bytes = ByteSize(cache_bytes as u64);
            format!("slots: {slots} of {context} tokens ({bytes})")
        }
    };
    let (mut served, mut adapters) = (Vec::new(), 0);
    let has_bank = members.len() > 1;
    for member in members {
        let in_bank = has_bank && member.plan.model().has_adapter();
        let handle = match in_bank {
            true => worker.with_adapter(adapters),
            false => worker.clone(),
        };
        adapters += usize::from(in_bank);
        let number = member.number;
        let about = named(member.spec, member.named);
        let model = serve(member, handle, &capacity).map_err(about)?;
        if served.is_empty() {
            capacity = format!("shares the slots of {}", model.name);
        }
        served.push((number, model));
    }
    Ok(served)
}

/// The weights of a draft model.
struct DraftWeights {
    open: Box<dyn Fn() -> Result<Model, ModelError> + Send>,
    formats: Formats,
}

impl DraftWeights {
    /// The draft model of a served one.
    fn of<B: Backend>(member: &Member<'_>, bases: &Bases<B>) -> Option<Self> {
        let draft = member.plan.draft()?;
        Some(Self {
            open: Box::new(draft.reopen()),
            formats: bases.formats(member.spec, draft),
        })
    }

    fn load<B: Backend>(&self, device: &Device<B>) -> Result<Transformer<B>, CliError> {
        model::decoder_in::<B>(&(self.open)()?, self.formats, device)
    }
}

/// Serves a model by the thread of its engine, and prints its size and `capacity`.
fn serve(member: Member<'_>, worker: Worker, capacity: &str) -> Result<ServedModel, CliError> {
    let (spec, model) = (member.spec, member.plan.model());
    let card = CardSource::new(&spec.path, spec.follows, model)?;
    let mut served = member.plan.serve(worker, Some(sandbox::grammars()))?;
    served.card = Box::new(move || card.card());
    console::note(format_args!(
        "{}{}: {}, {} parameters; {capacity}{}",
        served.name,
        aliases(&served),
        model.about()?,
        HumanCount(count::parameters(model.config()).total as u64),
        chats(&served),
    ));
    Ok(served)
}
