//! Loads the models to serve.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use burn::tensor::Device;
use bytesize::ByteSize;
use emberlm_checkpoint::checkpoint::newest_step;
use emberlm_checkpoint::{Embedder, Model, ModelKind};
use emberlm_kernels::Backend;
use emberlm_model::{WeightFormat, count};
use emberlm_serve::{Card, EncoderDecoderPlan, EncoderPlan, LoadPlan, Loaded, ServedModel};
use emberlm_trainer::fit::InferenceWork;
use indicatif::HumanCount;

use super::follow;
use super::log::Log;
use super::models::ModelSpec;
use crate::console;
use crate::error::{CliError, warn};
use crate::memory_guard::MemoryGuard;
use crate::model;
use crate::opened_model::OpenedModel;
use crate::progress;
use crate::run_folders::is_run;
use crate::run_history::History;
use crate::sandbox;

/// Loads all models and starts their threads. Everything that does not need weights is checked for all models
/// first.
pub fn all<B: Backend>(
    specs: &[ModelSpec],
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
    check_memory::<B>(specs, &plans, guard)?;
    let mut served = Vec::new();
    for (spec, plan) in specs.iter().zip(plans) {
        let loaded = match plan {
            Plan::Decoder(plan) => load::<B>(spec, *plan, device, log),
            Plan::Encoder(plan) => load_encoder::<B>(*plan, device),
            Plan::EncoderDecoder(plan) => load_encoder_decoder::<B>(*plan, device),
        };
        served.push(loaded.map_err(about(spec))?);
    }
    Ok(served)
}

/// A model with its checked serving options.
enum Plan<'a> {
    Decoder(Box<LoadPlan<'a>>),
    Encoder(Box<EncoderPlan<'a>>),
    EncoderDecoder(Box<EncoderDecoderPlan<'a>>),
}

/// Opens a model to serve, and waits for the first checkpoint of a run that is followed.
fn open(spec: &ModelSpec) -> Result<OpenedModel, CliError> {
    let path = &spec.path;
    let kind = ModelKind::of(path);
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

/// Loads an encoder's weights and starts its thread.
fn load_encoder<B: Backend>(
    plan: EncoderPlan<'_>,
    device: &Device<B>,
) -> Result<ServedModel, CliError> {
    let model = plan.model();
    let sign = progress::loading(model.hugging_face().path());
    let embedder = model.embedder::<B>(device)?;
    drop(sign);
    let served = plan.load(embedder, None)?;
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
    device: &Device<B>,
) -> Result<ServedModel, CliError> {
    let model = plan.model();
    plan.ignored().iter().for_each(|ignored| warn(ignored));
    let sign = progress::loading(model.hugging_face().path());
    let weights = model.load::<B>(device)?;
    drop(sign);
    let served = plan.load(weights, Some(sandbox::grammars()), None)?;
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
    device: &Device<B>,
    log: &Log,
) -> Result<ServedModel, CliError> {
    let (path, model) = (&spec.path, plan.model());
    plan.ignored().iter().for_each(|ignored| warn(ignored));
    let decoder = model::decoder_in::<B>(model, spec.weights, device)?;
    let Loaded {
        mut served,
        replacer,
        cache_bytes,
    } = plan.load(decoder, Some(sandbox::grammars()), None)?;
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
            spec.weights,
            device.clone(),
            replacer,
            log.clone(),
        )?;
    }
    Ok(served)
}

/// Checks that the weights, KV caches and forward passes of all models fit into memory together.
fn check_memory<B: Backend>(
    specs: &[ModelSpec],
    plans: &[Plan<'_>],
    guard: MemoryGuard,
) -> Result<(), CliError> {
    let work = |(spec, plan): (&ModelSpec, &Plan<'_>)| match plan {
        Plan::Decoder(plan) => {
            let engine = plan.engine();
            InferenceWork::generation(
                model::held_weights(plan.model(), spec.weights),
                engine.slots,
                engine.capacity,
                engine.prefill_tokens,
            )
        }
        Plan::Encoder(plan) => {
            let longest = plan.model().longest_text();
            InferenceWork::encoding(longest, Embedder::<B>::PASS_TOKENS)
        }
        Plan::EncoderDecoder(plan) => {
            let engine = plan.engine();
            InferenceWork::targets(engine.slots, engine.capacity, engine.capacity)
        }
    };
    let works = specs.iter().zip(plans).map(|planned| {
        let config = match planned.1 {
            Plan::Decoder(plan) => plan.model().config().into(),
            Plan::Encoder(plan) => plan.model().config().into(),
            Plan::EncoderDecoder(plan) => plan.model().config().into(),
        };
        (config, work(planned))
    });
    let works: Vec<_> = works.collect();
    let one = |context: usize| move |work: InferenceWork| work.with_one_slot(context);
    let short_option = format!("--slots 1 --context {SHORT_CONTEXT}");
    guard.check_inference(
        "serving",
        &works,
        &[
            ("--slots 1", &one(usize::MAX)),
            (&short_option, &one(SHORT_CONTEXT)),
        ],
    )
}

/// Context length that the hint suggests if the model's full context does not fit into memory.
const SHORT_CONTEXT: usize = 1024;

/// Describes the model in a folder. Opening a model hashes its weights, so the description is cached until a
/// followed run has a new checkpoint.
struct CardSource {
    path: PathBuf,
    follows: bool,
    /// The checkpoint's step, and the description without losses.
    described: Mutex<(Option<usize>, Card)>,
}

impl CardSource {
    fn new(path: &Path, follows: bool, model: &Model) -> Result<Self, CliError> {
        let source = Self {
            path: path.to_owned(),
            follows,
            described: Mutex::default(),
        };
        let described = (source.step(), Card::of(model)?);
        Ok(Self {
            described: Mutex::new(described),
            ..source
        })
    }

    fn step(&self) -> Option<usize> {
        let newest = || newest_step(&self.path).ok().flatten();
        self.follows.then(newest).flatten()
    }

    /// The description with the run's current losses.
    fn card(&self) -> Card {
        let mut card = self.described();
        if is_run(&self.path) {
            let history = History::read(&self.path).unwrap_or_default();
            let losses = history.steps.iter().map(|step| (step.step, step.loss));
            let evaluations = history.evaluations.iter().map(|e| (e.step, e.loss));
            card.loss = thinned(losses.collect());
            card.validation = thinned(evaluations.collect());
        }
        card
    }

    fn described(&self) -> Card {
        let step = self.step();
        let mut described = self
            .described
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if described.0 != step
            && let Ok(card) = Model::open(&self.path).and_then(|model| Card::of(&model))
        {
            *described = (step, card);
        }
        described.1.clone()
    }
}

/// Downsamples to at most 1000 points, including the last one.
fn thinned(points: Vec<(usize, f64)>) -> Vec<(usize, f64)> {
    const MOST: usize = 1000;
    let every = points.len().div_ceil(MOST).max(1);
    let last = points.len().saturating_sub(1);
    let kept = points.into_iter().enumerate();
    let kept = kept.filter(|(at, _)| (last - at).is_multiple_of(every));
    // JSON only supports finite numbers.
    kept.map(|(_, point)| point)
        .filter(|(_, loss)| loss.is_finite())
        .collect()
}
