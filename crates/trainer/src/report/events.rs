//! The event log of a run, `events.jsonl`: one JSON object per line.
//!
//! Lines with a `time` depend on the machine: its throughput, its checkpoints, its interruptions. All others are a
//! function of only the configuration and the data, byte for byte, even if the run was stopped and resumed.
//!
//! Each line has a number `n`: its position among the lines with a time, or among the others. It reveals lost and
//! duplicate lines. Older versions wrote lines without it.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::TrainError;
use crate::report::metrics::{Metric, MetricValues};

mod log;
mod norms;
mod reader;
mod readings;

pub use log::EventLog;
pub(crate) use norms::bars;
pub use norms::{LayerNorms, NormKind};
pub use reader::{Damage, Entry, Finding, LINE_LIMIT, Reader};

/// A run's events.
pub const EVENTS_FILE: &str = "events.jsonl";

/// A line of `events.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A logged step.
    Step {
        /// Steps completed.
        step: usize,
        /// Positions computed in all steps so far, including positions that are not targets of the loss.
        tokens: u64,
        /// Targets of this step's loss, if fewer than the positions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        learnt: Option<usize>,
        /// Mean loss over the step's targets, before its update.
        #[serde(deserialize_with = "number")]
        loss: f64,
        /// `exp(loss)`, unless the loss is that of preferences or rewards.
        #[serde(
            default,
            deserialize_with = "optional_number",
            skip_serializing_if = "Option::is_none"
        )]
        perplexity: Option<f64>,
        /// Norm of all gradients together, before clipping.
        #[serde(deserialize_with = "number")]
        gradient_norm: f64,
        /// Learning rate of the update.
        learning_rate: f64,
        /// Values of other metrics.
        #[serde(default, skip_serializing_if = "MetricValues::is_empty")]
        metrics: MetricValues,
    },
    /// Norms by layer of a step that `train.norms_interval` selects and that updated the weights.
    Norms {
        /// Steps completed, including this one.
        step: usize,
        /// The layers, from the embeddings to the head.
        layers: Vec<LayerNorms>,
    },
    /// A step whose update was skipped.
    Skipped {
        /// Steps completed, including this one.
        step: usize,
        /// The step's mean loss; null if it is NaN.
        loss: Option<f64>,
        /// Norm of all gradients together; null if it is NaN.
        gradient_norm: Option<f64>,
        /// The reason.
        reason: String,
    },
    /// An evaluation.
    Evaluation {
        /// Steps completed.
        step: usize,
        /// Mean loss over the validation tokens. With several datasets, the mean of their losses with the weights of
        /// the mix.
        #[serde(deserialize_with = "number")]
        loss: f64,
        /// `exp(loss)`, unless the loss is that of preferences or rewards.
        #[serde(
            default,
            deserialize_with = "optional_number",
            skip_serializing_if = "Option::is_none"
        )]
        perplexity: Option<f64>,
        /// Number of predicted validation tokens.
        tokens: u64,
        /// The loss on each dataset, if there are several.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        datasets: Vec<DatasetLoss>,
        /// Values of other metrics.
        #[serde(default, skip_serializing_if = "MetricValues::is_empty")]
        metrics: MetricValues,
    },
    /// A text that the model generated.
    Sample {
        /// Steps completed.
        step: usize,
        /// The text.
        text: String,
    },
    /// The run was begun, or resumed after `step`.
    Begun {
        /// Seconds since 1970.
        time: f64,
        /// Steps completed before.
        step: usize,
        /// Total number of steps.
        steps: usize,
        /// The backend, or the sorted names of those of several ranks.
        backend: String,
        /// The version of the program.
        version: String,
        /// The lowest possible validation loss, if known.
        floor: Option<f64>,
        /// The loss of a uniform distribution over all tokens or labels, if the loss is a cross-entropy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uniform_loss: Option<f64>,
        /// The metrics declared by the run's hooks.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        metrics: Vec<Metric>,
    },
    /// The throughput.
    Pace {
        /// Seconds since 1970.
        time: f64,
        /// Steps completed.
        step: usize,
        /// Throughput since the previous `pace` line.
        tokens_per_second: f64,
        /// The model's floating-point operations per second as a fraction of those of a large matrix product, measured in
        /// the run; above 1 if the machine was busier during the measurement. Earlier versions wrote at most 1.
        utilization: Option<f64>,
        /// Resident memory, in MiB.
        memory_mib: Option<u64>,
        /// Bytes of tensors, if the device has its own memory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device_in_use: Option<u64>,
        /// Bytes reserved on the device, in use or free for later tensors.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device_reserved: Option<u64>,
        /// Estimated seconds to the last step.
        seconds_left: f64,
    },
    /// A checkpoint was written.
    Checkpoint {
        /// Seconds since 1970.
        time: f64,
        /// The step of the checkpoint.
        step: usize,
    },
    /// A checkpoint could not be written; the run continues and will try again.
    CheckpointFailed {
        /// Seconds since 1970.
        time: f64,
        /// The step of the checkpoint.
        step: usize,
        /// The reason.
        reason: String,
    },
    /// The run ended.
    Ended {
        /// Seconds since 1970.
        time: f64,
        /// Steps completed.
        step: usize,
        /// The outcome.
        how: Ending,
    },
}

/// The validation loss on one of several datasets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DatasetLoss {
    /// The dataset's directory, as the run's configuration has it.
    pub dataset: String,
    /// Mean loss over its validation tokens.
    #[serde(deserialize_with = "number")]
    pub loss: f64,
    /// Its validation tokens that were predicted.
    pub tokens: u64,
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// All steps were completed.
    Finished,
    /// The validation loss did not improve for `train.evaluation.early_stop` evaluations.
    EarlyStopped,
    /// A request stopped the run in order. `emberlm runs` lists it as stopped.
    Interrupted,
    /// An error ended the run.
    Failed,
}

impl Event {
    /// Returns true if the event has a time and so depends on the machine, not only on the configuration and the data.
    pub fn is_of_the_machine(&self) -> bool {
        match self {
            Self::Begun { .. }
            | Self::Pace { .. }
            | Self::Checkpoint { .. }
            | Self::CheckpointFailed { .. }
            | Self::Ended { .. } => true,
            Self::Step { .. }
            | Self::Norms { .. }
            | Self::Skipped { .. }
            | Self::Evaluation { .. }
            | Self::Sample { .. } => false,
        }
    }

    /// Steps completed at the time of the event.
    pub fn step(&self) -> usize {
        match self {
            Self::Step { step, .. }
            | Self::Norms { step, .. }
            | Self::Skipped { step, .. }
            | Self::Evaluation { step, .. }
            | Self::Sample { step, .. }
            | Self::Begun { step, .. }
            | Self::Pace { step, .. }
            | Self::Checkpoint { step, .. }
            | Self::CheckpointFailed { step, .. }
            | Self::Ended { step, .. } => *step,
        }
    }
}

/// Writes infinity, which a perplexity can be, and NaN as null: JSON has neither.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Option::deserialize(deserializer).map(|number| number.unwrap_or(f64::NAN))
}

/// [`number`] of a field that may be absent.
fn optional_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    number(deserializer).map(Some)
}

/// Seconds since 1970.
pub fn now() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0.0, |time| time.as_millis() as f64 / 1e3)
}

/// A run's events and the problems of their file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Events {
    /// The events that could be read.
    pub events: Vec<Event>,
    /// Unreadable and missing lines.
    pub damage: Damage,
}

/// Reads a run's events so far, without an incomplete last line.
///
/// # Errors
/// The file cannot be read, is not a regular file, or has lines but no event.
pub fn read(run: &Path) -> Result<Events, TrainError> {
    let path = run.join(EVENTS_FILE);
    let read = || {
        let mut reader = Reader::open(&path)?;
        let mut events = Vec::new();
        while let Some(entry) = reader.next()? {
            events.push(entry.event);
        }
        let damage = reader.into_damage();
        let first = damage.sentences().next();
        match first {
            // A different file rather than a damaged log.
            Some(sentence) if events.is_empty() => Err(std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                format!("it contains no event: {sentence}"),
            )),
            _ => Ok(Events { events, damage }),
        }
    };
    read().map_err(TrainError::file("read", &path))
}
