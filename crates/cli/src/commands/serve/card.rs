//! The descriptions of served models.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use emberlm_checkpoint::Model;
use emberlm_checkpoint::checkpoint::newest_step;
use emberlm_serve::Card;

use crate::error::CliError;
use crate::run_folders::is_run;
use crate::run_history::History;

/// Describes the model in a folder. Opening a model hashes its weights, so the description is cached until a
/// followed run has a new checkpoint.
pub struct CardSource {
    path: PathBuf,
    follows: bool,
    /// The checkpoint's step, and the description without losses.
    described: Mutex<(Option<usize>, Card)>,
}

impl CardSource {
    pub fn new(path: &Path, follows: bool, model: &Model) -> Result<Self, CliError> {
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
    pub fn card(&self) -> Card {
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
