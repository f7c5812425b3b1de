//! Checkpoints of a run: those of [`emberlm_checkpoint`] with the trainer's [`State`].
//!
//! Map: [`mod@write`] writes one, [`writer`] does so beside training. `emberlm_checkpoint` finds, reads and removes them.

use emberlm_checkpoint::checkpoint::Checkpoint as StoredCheckpoint;
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Steps made: with the configuration, the whole position of a run in its data and its random numbers.
    pub step: usize,
    /// Updates made: fewer, where steps were skipped.
    #[serde(default)]
    pub updates: u64,
    /// The newest validation loss, if there was an evaluation.
    pub validation_loss: Option<f64>,
    /// The lowest one, and the step it was seen at.
    pub best: Option<Best>,
    /// The evaluation after `step` was broken off by the request to stop; a resumed run begins with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evaluation_due: bool,
    /// The statistics that decide whether a step is skipped.
    #[serde(default)]
    pub watch: SkipHistory,
    /// The factor of the loss, where it is adapted during the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScale>,
    /// The identities of its datasets; their weights are in the run's configuration.
    #[serde(default)]
    pub data: Vec<DataIdentity>,
    /// The backend and the device.
    #[serde(default)]
    pub backend: String,
}

/// The lowest validation loss so far.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Best {
    /// In nats per token.
    pub loss: f64,
    /// Updates made by then.
    pub step: usize,
}
