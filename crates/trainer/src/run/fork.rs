//! A new run that continues from a checkpoint of another, with other settings.

use std::path::{Path, PathBuf};

use super::inputs::{RunInputs, sequence_tokens};
use crate::checkpoint::{Checkpoint, DataStart, State};
use crate::config::RunConfig;
use crate::data::identity::{DataIdentity, SplitIdentity};
use crate::error::TrainError;
use crate::objective::TrainSource;
use crate::report::events::{self, Event, EventLog};
use crate::run::ancestry::{Ancestor, Ancestry};
use crate::run::folder::RunFolder;
use crate::run::resume::{self, SettingChange};

/// A new run that continues from a checkpoint of another. It keeps the weights, the optimizer's state and, if the order of
/// the data is the same, the position in the data. Without a changed setting it continues exactly as the other run.
#[derive(Debug)]
pub struct Fork {
    path: PathBuf,
    parent: PathBuf,
    checkpoint: Box<Checkpoint>,
    then: Box<RunConfig>,
}

/// Settings that define the order of the training data.
const DATA_ORDER: [&str; 7] = [
    "data.mix.*.weight",
    "train.seed",
    "train.seq_len",
    "train.documents",
    "train.overfit_batch",
    "train.objective.density",
    "train.objective.mean_span",
];
/// Settings that define the validation loss.
const VALIDATION: [&str; 3] = [
    "train.evaluation.tokens",
    "train.seq_len",
    "train.documents",
];
/// Settings that define the completions of a step.
const ROLLOUT: [&str; 3] = ["train.seed", "train.micro_batch", "train.accumulation"];

impl Fork {
    /// A fork in the directory `path` from a checkpoint of the run `parent`, whose configuration was `then`.
    pub fn new(path: PathBuf, parent: PathBuf, checkpoint: Checkpoint, then: RunConfig) -> Self {
        Self {
            path,
            parent,
            checkpoint: Box::new(checkpoint),
            then: Box::new(then),
        }
    }

    /// The directory of the new run.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The run that is forked.
    pub fn parent(&self) -> &Path {
        &self.parent
    }

    /// The checkpoint that the new run starts from.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Returns true if the optimizer continues with the state of the checkpoint.
    pub(crate) fn keeps_optimizer(&self, now: &RunConfig) -> bool {
        let (then, now) = (&self.then.train, &now.train);
        then.optimizer.kind() == now.optimizer.kind() && then.frozen == now.frozen
    }

    /// Adapts the checkpoint's state to new settings and data. Returns notes on what does not continue.
    pub(crate) fn adapt(
        &self,
        state: &mut State,
        now: &RunConfig,
        inputs: &RunInputs,
    ) -> Vec<String> {
        let changes = resume::setting_changes(&self.then, now);
        let mut notes = Vec::new();
        if !self.keeps_optimizer(now) {
            state.updates = 0;
            notes.push(
                "the optimizer starts with a new state: train.optimizer.kind or train.frozen has changed"
                    .to_owned(),
            );
        }
        let is_same_validation = has_same(state, inputs, |identity| &identity.val);
        if !is_same_validation || any(&changes, &VALIDATION) || of_objective(&changes) {
            (state.best, state.validation_loss) = (None, None);
        }
        if !changes.iter().all(SettingChange::may_be_resumed) || !is_same_validation {
            state.evaluations_since_best = 0;
        }
        notes.extend(self.move_in_data(state, now, inputs, &changes));
        notes
    }

    /// Sets the position in the data, and returns a note if the order of the data is another.
    fn move_in_data(
        &self,
        state: &mut State,
        now: &RunConfig,
        inputs: &RunInputs,
        changes: &[SettingChange],
    ) -> Option<String> {
        let is_same_data = has_same(state, inputs, |identity| &identity.train);
        let moved = changes.iter().find(|change| change.is_one_of(&DATA_ORDER));
        let is_same_order = is_same_data && moved.is_none();
        if !is_same_order || any(changes, &ROLLOUT) || of_objective(changes) {
            state.rollout = None;
        }
        let step = state.step;
        let is_same_count = self.then.train.has_same_sequences(&now.train, step);
        let is_same_mix = self.has_same_mix(now, step, is_same_count);
        let is_same_order = is_same_order && is_same_mix;
        if is_same_order && is_same_count {
            return None;
        }
        let then = &self.then.train;
        let sequences = state.sequences_at(step, then);
        let positions = match &inputs.source {
            TrainSource::Windows { .. } => {
                let start = state.data_start.unwrap_or_default();
                let length = sequence_tokens(&self.then).unwrap_or(inputs.seq_len) as u64;
                start.positions + (sequences - start.sequences) * length
            }
            _ => self.logged_positions(step),
        };
        let sequences = if is_same_order { sequences } else { 0 };
        state.data_start = Some(DataStart {
            step,
            sequences,
            positions,
        });
        let cause = match (is_same_order, moved) {
            (true, _) => return None,
            (false, Some(change)) => format!("{} has changed", change.key),
            (false, None) if !is_same_mix => {
                format!("the order of the datasets before step {step} has changed")
            }
            (false, None) => "it is other data".to_owned(),
        };
        Some(format!("the data is read from its beginning: {cause}"))
    }

    /// Returns true if the first `step` steps have the same sequences of each dataset, whose weights may change between steps.
    /// If the steps have other numbers of sequences, such changes are not at the same sequences.
    fn has_same_mix(&self, now: &RunConfig, step: usize, is_same_count: bool) -> bool {
        let [then, now] = [&self.then, now].map(|config| {
            // Invalid weights were refused before.
            let weights = config.data.weights().unwrap_or_default();
            let changes = config.train.weight_changes(&weights).into_iter();
            let past = changes.filter(|change| change.step < step);
            past.collect::<Vec<_>>()
        });
        then == now && (is_same_count || then.iter().all(|change| change.step == 0))
    }

    /// The positions computed in `step` steps, from the log.
    fn logged_positions(&self, step: usize) -> u64 {
        let events = events::read(&self.parent).unwrap_or_default().events;
        let logged = events.iter().filter_map(|event| match event {
            Event::Step {
                step: at, tokens, ..
            } if *at <= step => Some(*tokens),
            _ => None,
        });
        logged.max().unwrap_or(0)
    }

    /// Creates the directory of the new run with its ancestry, its configuration `now`, also as `text`, and the log so far.
    pub(super) fn create(
        &self,
        text: &str,
        now: &RunConfig,
    ) -> Result<(RunFolder, EventLog, events::Damage), TrainError> {
        let step = self.checkpoint.state.as_ref().map_or(0, |state| state.step);
        let run = self.parent.canonicalize();
        let changes = resume::setting_changes(&self.then, now);
        let mut ancestry = Ancestry::read(&self.parent).unwrap_or_default();
        ancestry.ancestors.insert(
            0,
            Ancestor {
                run: run.unwrap_or_else(|_| self.parent.clone()),
                step,
                changes: changes.iter().map(SettingChange::values).collect(),
            },
        );
        let folder = RunFolder::create_with(&self.path, text, |path| ancestry.write(path))?;
        let log = self.parent.join(events::EVENTS_FILE);
        let (log, damage) = match log.is_file() {
            true => {
                let copy = self.path.join(events::EVENTS_FILE);
                std::fs::copy(&log, &copy).map_err(TrainError::file("create", &copy))?;
                EventLog::resume(&self.path, step)?
            }
            false => (EventLog::create(&self.path)?, events::Damage::default()),
        };
        Ok((folder, log, damage))
    }
}

/// Returns true if the data has the same part as that of the checkpoint.
fn has_same(
    state: &State,
    inputs: &RunInputs,
    part: impl Fn(&DataIdentity) -> &SplitIdentity,
) -> bool {
    let now = inputs.identities.iter().map(&part);
    state.data.iter().map(&part).eq(now)
}

fn any(changes: &[SettingChange], keys: &[&str]) -> bool {
    changes.iter().any(|change| change.is_one_of(keys))
}

/// Returns true if a setting of the objective has changed.
fn of_objective(changes: &[SettingChange]) -> bool {
    let is_own = |change: &SettingChange| change.key.starts_with("train.objective.");
    changes.iter().any(is_own)
}
