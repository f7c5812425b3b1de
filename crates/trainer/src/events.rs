//! `events.jsonl`: what happened in a run, a line each.
//!
//! Lines with a `time` depend on the machine: its throughput, its checkpoints, its interruptions. All others are a function
//! of only the configuration and the data, byte for byte, whether the run was stopped and resumed or not.
//!
//! Each line has a number `n`, its place among the lines with a time or among the others, so that a line that was lost
//! or is there twice is noticed. Lines of older versions have none.

use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize};

use crate::error::TrainError;
use crate::metrics::{Metric, MetricValues};

mod log;
mod reader;
mod readings;

pub use log::EventLog;
pub use reader::{Damage, Entry, Finding, LINE_LIMIT, Reader};

/// A run's events.
pub const EVENTS_FILE: &str = "events.jsonl";

/// A line of `events.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A logged step.
    Step {
        /// Steps made.
        step: usize,
        /// Tokens trained on: positions computed in all steps so far, whether they are learnt or not.
        tokens: u64,
        /// Targets of this step that are learnt, where it is not all of them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        learnt: Option<usize>,
        /// The step's mean loss over them, before its update.
        #[serde(deserialize_with = "number")]
        loss: f64,
        /// `exp(loss)`.
        #[serde(deserialize_with = "number")]
        perplexity: f64,
        /// Norm of all gradients together, before clipping.
        #[serde(deserialize_with = "number")]
        gradient_norm: f64,
        /// The update's learning rate.
        learning_rate: f64,
        /// Readings of other metrics.
        #[serde(default, skip_serializing_if = "MetricValues::is_empty")]
        metrics: MetricValues,
    },
    /// A step that was computed, but whose update was not made.
    Skipped {
        /// Steps made, with this one.
        step: usize,
        /// The step's mean loss; `None` if it is NaN.
        loss: Option<f64>,
        /// Norm of all gradients together; `None` if it is NaN.
        gradient_norm: Option<f64>,
        /// Why.
        reason: String,
    },
    /// An evaluation.
    Evaluation {
        /// Steps made.
        step: usize,
        /// Mean loss over the validation tokens; of several datasets, their means weighted as in training.
        #[serde(deserialize_with = "number")]
        loss: f64,
        /// `exp(loss)`.
        #[serde(deserialize_with = "number")]
        perplexity: f64,
        /// Validation tokens that were predicted.
        tokens: u64,
        /// Each dataset's own, where there are several.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        datasets: Vec<DatasetLoss>,
        /// Readings of other metrics.
        #[serde(default, skip_serializing_if = "MetricValues::is_empty")]
        metrics: MetricValues,
    },
    /// The text that the model generated.
    Sample {
        /// Steps made.
        step: usize,
        /// The text.
        text: String,
    },
    /// The run was begun, or resumed after `step`.
    Begun {
        /// Seconds since 1970.
        time: f64,
        /// Steps made before.
        step: usize,
        /// Steps in all.
        steps: usize,
        /// The backend and the device.
        backend: String,
        /// The program's.
        version: String,
        /// The lowest validation loss that any model can have, where it is known.
        floor: Option<f64>,
        /// The metrics that the run's hooks declare.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        metrics: Vec<Metric>,
    },
    /// The throughput.
    Pace {
        /// Seconds since 1970.
        time: f64,
        /// Steps made.
        step: usize,
        /// Since the line before.
        tokens_per_second: f64,
        /// The model's floating-point operations over what the machine's matrix product reaches, 0 to 1.
        utilization: Option<f64>,
        /// Resident memory now.
        memory_mib: Option<u64>,
        /// Bytes in tensors, if the device has its own memory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device_in_use: Option<u64>,
        /// Bytes taken from the device, whether in use or kept for tensors to come.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device_reserved: Option<u64>,
        /// At this pace, to the last step.
        seconds_left: f64,
    },
    /// A checkpoint is whole on disk.
    Checkpoint {
        /// Seconds since 1970.
        time: f64,
        /// The step it is of.
        step: usize,
    },
    /// A checkpoint could not be written; the run continues and will try again.
    CheckpointFailed {
        /// Seconds since 1970.
        time: f64,
        /// The step it was to be of.
        step: usize,
        /// Why.
        reason: String,
    },
    /// The run ended.
    Ended {
        /// Seconds since 1970.
        time: f64,
        /// Steps made.
        step: usize,
        /// The outcome.
        how: Ending,
    },
}

/// The validation loss on one of several datasets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// At its last step.
    Finished,
    /// By a request to stop.
    Interrupted,
    /// By an error.
    Failed,
}

impl Event {
    /// Returns true if it has a time: it is of the machine, not of the configuration and the data.
    pub fn is_of_the_machine(&self) -> bool {
        match self {
            Self::Begun { .. }
            | Self::Pace { .. }
            | Self::Checkpoint { .. }
            | Self::CheckpointFailed { .. }
            | Self::Ended { .. } => true,
            Self::Step { .. }
            | Self::Skipped { .. }
            | Self::Evaluation { .. }
            | Self::Sample { .. } => false,
        }
    }

    /// Steps made when it happened.
    pub fn step(&self) -> usize {
        match self {
            Self::Step { step, .. }
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

/// JSON has no infinity, as a perplexity may be, and no NaN: they are written as null.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Option::deserialize(deserializer).map(|number| number.unwrap_or(f64::NAN))
}

/// Seconds since 1970.
pub fn now() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0.0, |time| time.as_millis() as f64 / 1e3)
}

/// A run's events, and what is wrong with the file that holds them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Events {
    /// The events that could be read.
    pub events: Vec<Event>,
    /// The lines that could not, and those that are missing.
    pub damage: Damage,
}

/// A run's events so far. A last line that was not written whole is left out.
///
/// # Errors
/// The file cannot be read, is not a regular file, or has lines of which none is an event.
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
            // Some other file, rather than a damaged log.
            Some(sentence) if events.is_empty() => Err(std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                format!("it holds no event: {sentence}"),
            )),
            _ => Ok(Events { events, damage }),
        }
    };
    read().map_err(TrainError::file("read", &path))
}
