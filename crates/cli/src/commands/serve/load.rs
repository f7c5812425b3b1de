//! A model, from its folder to what is served.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use burn::tensor::Device;
use bytesize::ByteSize;
use emberlm_checkpoint::Model;
use emberlm_checkpoint::checkpoint::newest_step;
use emberlm_kernels::Backend;
use emberlm_model::{WeightFormat, count};
use emberlm_serve::{self as serve, Card, Loaded, ServeOptions};
use indicatif::HumanCount;

use crate::console;
use crate::error::CliError;
use crate::model;
use crate::run_folders::is_run;
use crate::run_history::History;
use crate::sandbox;

/// Reads a model and starts its thread. Of a run that `follows`, the newest checkpoint is described.
pub fn load<B: Backend>(
    path: &Path,
    follows: bool,
    weights: WeightFormat,
    options: &ServeOptions,
    device: &Device<B>,
) -> Result<Loaded<B>, CliError> {
    let model = model::open(path)?;
    // Before the weights are read.
    model.require_tokenizer()?;
    let decoder = model::decoder_in::<B>(&model, weights, device)?;
    let grammars = Some(sandbox::grammars());
    let mut loaded = serve::load(&model, decoder, options, grammars, device)?;
    let (served, config) = (&mut loaded.served, model.config());
    let engine = served.worker.config();
    console::note(format_args!(
        "{}: {}, {} parameters; slots: {} of {} tokens ({}){}",
        served.name,
        model.about()?,
        HumanCount(count::parameters(config).total as u64),
        engine.slots,
        HumanCount(engine.capacity as u64),
        ByteSize(loaded.cache_bytes as u64),
        if served.chat.is_some() {
            "; it chats"
        } else {
            ""
        }
    ));
    let card = CardSource::new(path, follows, &model)?;
    served.card = Box::new(move || card.card());
    Ok(loaded)
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
            && let Ok(card) = Model::open(&self.path).and_then(|model| Card::of(&model))
        {
            *described = (step, card);
        }
        described.1.clone()
    }
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
