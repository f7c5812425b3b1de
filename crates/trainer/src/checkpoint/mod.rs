//! Checkpoints of a run: those of [`emberlm_checkpoint`] with the trainer's [`State`].
//!
//! [`mod@write`] writes a checkpoint, [`writer`] does so in the background, and `shards` writes the optimizer's state of
//! several ranks. `emberlm_checkpoint` finds, reads and removes checkpoints.

use emberlm_checkpoint::checkpoint::Checkpoint as StoredCheckpoint;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::identity::DataIdentity;
use crate::loss_scale::LossScale;
use crate::objective::Rollout;
use crate::skip::SkipHistory;

pub(crate) mod shards;
pub mod write;
pub mod writer;

pub use emberlm_checkpoint::{Description, FOLDER, Keep, prune, sweep, write_untrained};
pub use write::{About, AboutModel, Contents, OptimizerState, write};
pub use writer::{Writer, Written};

/// A stored checkpoint with the trainer's state.
pub type Checkpoint = StoredCheckpoint<State>;

/// The state of a run that resuming needs, other than weights and optimizer moments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Completed steps. With the configuration, this determines the position in the data and the random
    /// seeds.
    pub step: usize,
    /// Completed updates; fewer than `step` if steps were skipped.
    #[serde(default)]
    pub updates: u64,
    /// The latest validation loss, if there was an evaluation.
    pub validation_loss: Option<f64>,
    /// The lowest validation loss and its step.
    pub best: Option<Best>,
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
