//! Loads the models of one engine that generate tokens: a base model and adapters of it, or one model.

use std::sync::Arc;

use burn::tensor::Device;
use bytesize::ByteSize;
use emberlm_checkpoint::{Model, ModelError, ModelKind};
use emberlm_generate::Engine;
use emberlm_kernels::Backend;
use emberlm_model::{Transformer, count};
use emberlm_serve::{
    LoadPlan, OnDemand, Place, Replacement, Replacer, ServedModel, Started, Weights, Worker,
    WorkerWatch,
};
use indicatif::HumanCount;

use super::bases::Bases;
use super::card::CardSource;
use super::groups::EngineKey;
use super::load::{self, aliases, chats, reload};
use super::log::Log;
use super::models::ModelSpec;
use super::{follow, groups, prompt_cache};
use crate::console;
use crate::error::{CliError, warn};
use crate::model;
use crate::sandbox;
use crate::weights_arg::Formats;

/// A running engine whose weights others share. Further models can join it, unless it runs a single adapter.
pub struct SharedEngine<B: Backend> {
    pub key: EngineKey,
    /// The weights with the bank of adapters; `None` if no models can join.
    decoder: Option<Transformer<B>>,
    replacer: Replacer<OnDemand<Engine<B>>>,
    /// The models with the numbers of their adapters.
    members: Vec<(Option<usize>, WorkerWatch)>,
}

/// The models of an engine, and the engine if others can join it.
pub struct LoadedGroup<B: Backend> {
    /// The models with their numbers.
    pub models: Vec<(usize, ServedModel)>,
    pub engine: Option<SharedEngine<B>>,
}

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
/// it. Models with a key can be joined by others, unless they are unloaded from a place.
pub fn load<B: Backend>(
    members: Vec<Member<'_>>,
    key: Option<EngineKey>,
    place: Option<Place>,
    bases: &mut Bases<B>,
    device: &Device<B>,
    log: &Log,
) -> Result<LoadedGroup<B>, CliError> {
    let Some(first) = members.first() else {
        return Ok(LoadedGroup {
            models: Vec::new(),
            engine: None,
        });
    };
    warn_of_ignored(&members);
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
    let decoder = with_cache(decoder, first)?;
    // A single adapter is not in a bank.
    let has_bank = members.len() > 1;
    let is_joinable = has_bank || !models[0].has_adapter();
    let shared = key.filter(|_| place.is_none());
    let shared = shared.map(|key| (key, is_joinable.then(|| decoder.clone())));
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
    let mut engine = None;
    if first.spec.follows {
        let formats = Formats {
            weights: first.spec.weights,
            ..formats
        };
        let run = first.spec.path.clone();
        follow::start(run, formats, device.clone(), replacer, log.clone())
            .map_err(|error| first.about(error))?;
    } else {
        engine = shared.map(|(key, decoder)| SharedEngine {
            key,
            decoder,
            replacer,
            members: Vec::new(),
        });
    }
    let limits = worker.limits();
    let (slots, context) = (limits.slots, HumanCount(limits.context as u64));
    let capacity = match models[0].kind() {
        ModelKind::EncoderDecoder => {
            format!("slots: {slots}, sources and targets of at most {context} tokens")
        }
        ModelKind::Decoder | ModelKind::Encoder => {
            let bytes = ByteSize(cache_bytes as u64);
            format!("slots: {slots} of {context} tokens ({bytes})")
        }
    };
    let models = serve_all(members, &worker, has_bank.then_some(0), &capacity, None)?;
    if let Some(engine) = &mut engine {
        engine.add(&models);
    }
    let models = models.into_iter().map(|(number, _, model)| (number, model));
    Ok(LoadedGroup {
        models: models.collect(),
        engine,
    })
}

impl<B: Backend> SharedEngine<B> {
    /// Returns true if models can join.
    pub fn is_joinable(&self) -> bool {
        self.decoder.is_some()
    }

    /// Returns true if `worker` is a handle of this engine's thread.
    pub fn runs(&self, worker: &Worker) -> bool {
        self.members.iter().any(|(_, watch)| watch.is_of(worker))
    }

    /// Returns true if the base model is served itself.
    pub fn has_base(&self) -> bool {
        let mut bases = self.members.iter().filter(|(adapter, _)| adapter.is_none());
        bases.any(|(_, watch)| watch.is_used())
    }

    /// Adds models to the running engine, of which `first` is a model. Its running requests continue.
    ///
    /// # Errors
    /// An adapter cannot be read or is for another model, or the engine has ended.
    pub fn join(
        &mut self,
        members: Vec<Member<'_>>,
        first: &ServedModel,
    ) -> Result<Vec<(usize, ServedModel)>, CliError> {
        warn_of_ignored(&members);
        let models: Vec<&Model> = members.iter().map(|member| member.plan.model()).collect();
        let base = model::open(self.key.base())?;
        let about = |number: usize, error| members[number].about(error);
        let ended = || CliError::new("the base model is no longer served");
        let mut decoder = self.decoder.clone().ok_or_else(ended)?;
        let before = decoder.bank_len();
        groups::add_to_bank(&mut decoder, &base, &models, about)?;
        if decoder.bank_len() > before {
            self.replace(decoder)?;
        }
        let models = serve_all(members, &first.worker, Some(before), "", Some(&first.name))?;
        self.add(&models);
        let models = models.into_iter().map(|(number, _, model)| (number, model));
        Ok(models.collect())
    }

    /// Frees the adapters of models that are no longer served and have no requests. Returns false if no model is left.
    pub fn free_unused(&mut self) -> bool {
        let unused = self.members.iter().filter(|(_, watch)| !watch.is_used());
        let unused: Vec<usize> = unused.filter_map(|(adapter, _)| *adapter).collect();
        self.members.retain(|(_, watch)| watch.is_used());
        if !unused.is_empty()
            && !self.members.is_empty()
            && let Some(mut decoder) = self.decoder.clone()
        {
            unused
                .into_iter()
                .for_each(|adapter| decoder.clear_in_bank(adapter));
            // An engine that has ended has no adapters.
            let _ = self.replace(decoder);
        }
        !self.members.is_empty()
    }

    fn replace(&mut self, decoder: Transformer<B>) -> Result<(), CliError> {
        let replacement = Replacement::Bank(Arc::new(decoder.clone()));
        match self.replacer.replace(replacement) {
            true => self.decoder = Some(decoder),
            false => return Err(CliError::new("the base model is no longer served")),
        }
        Ok(())
    }

    fn add(&mut self, models: &[ServedMember]) {
        let watched = models
            .iter()
            .map(|(_, adapter, model)| (*adapter, model.worker.watch()));
        self.members.extend(watched);
    }
}

/// A model with its number, and the number of its adapter in the bank.
type ServedMember = (usize, Option<usize>, ServedModel);

fn warn_of_ignored(members: &[Member<'_>]) {
    let ignored = members.iter().flat_map(|member| member.plan.ignored());
    ignored.for_each(|ignored| warn(ignored));
}

/// The decoder with the format of its caches.
fn with_cache<B: Backend>(
    decoder: Transformer<B>,
    member: &Member<'_>,
) -> Result<Transformer<B>, CliError> {
    let decoder = decoder.with_cache_format(member.plan.options().cache);
    decoder.map_err(|error| member.about(error.into()))
}

/// Serves models by the thread of `worker`, whose `first` model has printed its `capacity` if there is one. Returns each with its
/// number and that of its adapter: they count from `bank`; without a bank, there is one model.
fn serve_all(
    members: Vec<Member<'_>>,
    worker: &Worker,
    mut bank: Option<usize>,
    capacity: &str,
    first: Option<&str>,
) -> Result<Vec<ServedMember>, CliError> {
    let mut served: Vec<ServedMember> = Vec::new();
    let mut first = first.map(str::to_owned);
    for member in members {
        let adapter = bank.filter(|_| member.plan.model().has_adapter());
        bank = bank.map(|bank| bank + usize::from(adapter.is_some()));
        let handle = match adapter {
            Some(adapter) => worker.with_adapter(adapter),
            None => worker.without_adapter(),
        };
        let number = member.number;
        let about = named(member.spec, member.named);
        let capacity = match &first {
            Some(first) => format!("shares the slots of {first}"),
            None => capacity.to_owned(),
        };
        let model = serve(member, handle, &capacity).map_err(about)?;
        first.get_or_insert_with(|| model.name.clone());
        served.push((number, adapter, model));
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
pub fn serve(member: Member<'_>, worker: Worker, capacity: &str) -> Result<ServedModel, CliError> {
    let (spec, model) = (member.spec, member.plan.model());
    let card = CardSource::new(&spec.path, spec.follows, model)?;
    let mut served = member.plan.serve(worker, Some(sandbox::grammars()))?;
    served.card = Box::new(move || card.card());
    served.source = load::source(spec, model);
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
