//! Checkpoints of a run: those of [`emberlm_checkpoint`] with the trainer's [`State`].
//!
//! [`mod@write`] writes a checkpoint, [`writer`] does so in the background, and `shards` writes the optimizer's state of
//! several ranks. `emberlm_checkpoint` finds, reads and removes checkpoints.

use emberlm_checkpoint::checkpoint::Checkpoint as StoredCheckpoint;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::TrainConfig;
use crate::data::identity::DataIdentity;
use crate::objective::Rollout;
use crate::optimizer::loss_scale::LossScale;
use crate::optimizer::skip::SkipHistory;

pub(crate) mod shards;
pub mod write;
pub mod writer;

pub use emberlm_checkpoint::{Description, FOLDER, Keep, prune, sweep, write_untrained};
pub use write::{About, Contents, OptimizerState, write};
pub use writer::{Writer, Written};

/// A stored checkpoint with the trainer's state.
pub type Checkpoint = StoredCheckpoint<State>;

/// The state of a run that resuming needs, other than weights and optimizer moments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Completed steps. With the configuration and `data_start`, this determines the position in the data and the random
    /// seeds.
    pub step: usize,
    /// Completed updates; fewer than `step` if steps were skipped.
    #[serde(default)]
    pub updates: u64,
    /// The latest validation loss, if there was an evaluation.
    pub validation_loss: Option<f64>,
    /// The lowest validation loss and its step.
    pub best: Option<Best>,
    /// Evaluations at the interval since the one with the lowest validation loss. One that is made only because a run ends does
    /// not count: without the end it would not be made.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub evaluations_since_best: usize,
    /// True if a request to stop interrupted the evaluation after `step`. A resumed run starts with that
    /// evaluation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evaluation_due: bool,
    /// The history that decides which steps are skipped.
    #[serde(default)]
    pub watch: SkipHistory,
    /// The loss scale, if it is adaptive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScale>,
    /// The positions computed so far, if their number is not determined by the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positions: Option<u64>,
    /// The sampled completions that the next step trains on again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// The identities of the datasets. Their weights are in the run's configuration.
    #[serde(default)]
    pub data: Vec<DataIdentity>,
    /// The backend, or the sorted names of those of several ranks, for display.
    #[serde(default)]
    pub backend: String,
    /// True if the checkpoint is removed once a newer one is complete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub temporary: bool,
    /// The position in the data from which a fork with other settings counts. Otherwise the step determines the position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_start: Option<DataStart>,
    /// The settings that the run was trained with, in the format of `config.toml`, which have their own file.
    #[serde(skip)]
    pub settings: Option<String>,
}

/// A position in the training data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataStart {
    /// Completed steps.
    pub step: usize,
    /// The number of the next sequence in the order of the data.
    pub sequences: u64,
    /// Positions computed in these steps.
    pub positions: u64,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl State {
    /// Records the validation loss after `step` steps of a run that evaluates every `interval` steps. Returns true if it is the
    /// lowest so far.
    pub(crate) fn record_validation(&mut self, loss: f64, step: usize, interval: usize) -> bool {
        self.validation_loss = Some(loss);
        let is_lowest = self.best.is_none_or(|best| loss < best.loss);
        if is_lowest {
            self.best = Some(Best { loss, step });
            self.evaluations_since_best = 0;
        } else if step.is_multiple_of(interval) {
            self.evaluations_since_best += 1;
        }
        is_lowest
    }

    /// The number of the sequence that follows `step` steps.
    pub(crate) fn sequences_at(&self, step: usize, train: &TrainConfig) -> u64 {
        let start = self.data_start.unwrap_or_default();
        let step = step.max(start.step);
        start.sequences + train.sequences_before(step) - train.sequences_before(start.step)
    }
}

/// The lowest validation loss so far.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Best {
    /// The loss in nats per token.
    pub loss: f64,
    /// Steps completed when it was measured.
    pub step: usize,
}
