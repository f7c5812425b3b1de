//! Checkpoints of a run: those of [`emberlm_checkpoint`] with the trainer's [`State`].
//!
//! Map: [`mod@write`] writes one, [`writer`] does so beside training. `emberlm_checkpoint` finds, reads and removes them.

use emberlm_checkpoint::checkpoint::Checkpoint as StoredCheckpoint;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::identity::DataIdentity;
use crate::loss_scale::LossScale;
use crate::skip::SkipHistory;

pub mod write;
pub mod writer;

pub use emberlm_checkpoint::{Description, FOLDER, Keep, prune, sweep, write_untrained};
pub use write::{About, Contents, write};
pub use writer::{Writer, Written};

/// A checkpoint with the position of its run.
pub type Checkpoint = StoredCheckpoint<State>;

/// The position of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Completed steps. With the configuration, they determine the run's position in its data and random numbers.
    pub step: usize,
    /// Updates made: fewer than steps if steps were skipped.
    #[serde(default)]
    pub updates: u64,
    /// The latest validation loss, if there was an evaluation.
    pub validation_loss: Option<f64>,
    /// The best validation loss.
    pub best: Option<Best>,
    /// True if a stop request interrupted the evaluation after `step`. A resumed run begins with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evaluation_due: bool,
    /// The window of steps by which later steps are judged.
    #[serde(default)]
    pub watch: SkipHistory,
    /// The loss scale, if it is adapted during the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScale>,
    /// The identities of the datasets. Their weights in the mix are in the run's configuration.
    #[serde(default)]
    pub data: Vec<DataIdentity>,
    /// The backend and the device.
    #[serde(default)]
    pub backend: String,
}

/// The lowest validation loss so far.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Best {
    /// In nats per token.
    pub loss: f64,
    /// The step of the evaluation.
    pub step: usize,
}
