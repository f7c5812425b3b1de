//! A model, from its folder to what is served.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use burn::tensor::Device;
use bytesize::ByteSize;
use emberlm_generate::{Engine, EngineConfig};
use emberlm_kernels::Backend;
use emberlm_model::{KvCache, WeightFormat, count};
use emberlm_serve::model::{Tables, Talk};
use emberlm_serve::{Card, Replacer, ServedModel, Worker};
use emberlm_trainer::checkpoint::Checkpoint;
use indicatif::HumanCount;

use crate::console;
use crate::error::CliError;
use crate::model_source::Model;
use crate::run_folders::is_run;
use crate::run_history::History;
use crate::sandbox;

/// How much a model may do at once.
pub struct Sizes {
    pub slots: Option<usize>,
    pub context: Option<usize>,
    pub queue: usize,
    pub weights: WeightFormat,
    pub deterministic: bool,
}

/// A model that runs.
pub struct Loaded<B: Backend> {
    pub served: ServedModel,
    pub replacer: Replacer<B>,
}

/// What the caches of all slots may take where nobody says how many slots.
const CACHES: usize = 1 << 30;
/// The most slots where nobody says how many.
const MOST_SLOTS: usize = 64;

/// Reads a model and starts its thread. Of a run that `follows`, the newest checkpoint is described.
pub fn load<B: Backend>(
    path: &Path,
    follows: bool,
    name: String,
    template: Option<&str>,
    sizes: &Sizes,
    device: &Device<B>,
) -> Result<Loaded<B>, CliError> {
    let model = Model::open(path)?;
    let tokenizer = model.speaking(path)?;
    let chat = model.chat(&tokenizer, template)?.map(|encoder| Talk {
        stops: model.chat_stops(&tokenizer, &encoder),
        encoder,
    });
    let decoder = model.decoder_in::<B>(sizes.weights, device)?;
    let config = model.config();
    let context = model.context(sizes.context)?;
    let one = KvCache::<B>::new(config, 1, context, device).bytes();
    let engine = EngineConfig {
        slots: sizes
            .slots
            .unwrap_or((CACHES / one.max(1)).clamp(1, MOST_SLOTS)),
        capacity: context,
        deterministic: sizes.deterministic,
        ..EngineConfig::for_model(config)
    };
    let engine = Engine::new(Arc::new(decoder), engine)?;
    console::note(format_args!(
        "{name}: {}, {} parameters; slots: {} of {} tokens ({}){}",
        model.about()?,
        HumanCount(count::parameters(config).total as u64),
        engine.config().slots,
        HumanCount(context as u64),
        ByteSize(engine.cache_bytes() as u64),
        if chat.is_some() { "; it chats" } else { "" }
    ));
    let limit = engine.config().slots.saturating_add(sizes.queue);
    let (worker, replacer) = Worker::start(engine, limit)
        .map_err(|error| CliError::new(format!("cannot start the model's thread: {error}")))?;
    let card = CardSource::new(path, follows, &model)?;
    let served = ServedModel {
        name,
        created: made(model.path()),
        chat,
        stop_tokens: model.stop_tokens(Some(&tokenizer)),
        beginning: model.beginning(&tokenizer),
        card: Box::new(move || card.card()),
        tokenizer,
        worker,
        tables: Tables::new(Some(sandbox::grammars())),
    };
    Ok(Loaded { served, replacer })
}

/// When a folder was last written, in seconds since 1970.
fn made(path: &Path) -> u64 {
    let time = fs::metadata(path).and_then(|metadata| metadata.modified());
    let since = time
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_secs())
}

/// Describes the model in a folder. Opening a model hashes its weights: it is described once, and again only when a
/// followed run has another checkpoint.
struct CardSource {
    path: PathBuf,
    follows: bool,
    /// The checkpoint's step and its description without losses.
    described: Mutex<(Option<usize>, Card)>,
}

impl CardSource {
    fn new(path: &Path, follows: bool, model: &Model) -> Result<Self, CliError> {
        let source = Self {
            path: path.to_owned(),
            follows,
            described: Mutex::default(),
        };
        let described = (source.step(), describe(model)?);
        Ok(Self {
            described: Mutex::new(described),
            ..source
        })
    }

    fn step(&self) -> Option<usize> {
        let newest = || Checkpoint::newest_step(&self.path).ok().flatten();
        self.follows.then(newest).flatten()
    }

    /// The description, with the losses of its run as they are now.
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
            && let Ok(card) = Model::open(&self.path).and_then(|model| describe(&model))
        {
            *described = (step, card);
        }
        described.1.clone()
    }
}

/// The description of a model, without losses.
fn describe(model: &Model) -> Result<Card, CliError> {
    let config = model.config();
    let spec = model.tokenizer_spec()?;
    Ok(Card {
        family: config.family.name().to_owned(),
        parameters: count::parameters(config).total as u64,
        tokenizer: spec.map_or_else(String::new, |spec| spec.kind.to_string()),
        about: model.about()?,
        ..Card::default()
    })
}

/// At most so many points, the last among them.
fn thinned(points: Vec<(usize, f64)>) -> Vec<(usize, f64)> {
    const MOST: usize = 1000;
    let every = points.len().div_ceil(MOST).max(1);
    let last = points.len().saturating_sub(1);
    let kept = points.into_iter().enumerate();
    let kept = kept.filter(|(at, _)| (last - at).is_multiple_of(every));
    // JSON has no other numbers.
    kept.map(|(_, point)| point)
        .filter(|(_, loss)| loss.is_finite())
        .collect()
}
