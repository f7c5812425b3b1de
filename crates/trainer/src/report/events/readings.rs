//! The metric values in an event.

use super::Event;
use crate::report::metrics::Phase;

impl Event {
    /// The phase of an event with metrics, and the metrics' names and values.
    pub fn readings(&self) -> Option<(Phase, Vec<(&str, f64)>)> {
        match self {
            Self::Step {
                loss,
                perplexity,
                gradient_norm,
                learning_rate,
                metrics,
                ..
            } => {
                let mut found = vec![("loss", *loss)];
                found.extend(perplexity.map(|value| ("perplexity", value)));
                found.push(("gradient_norm", *gradient_norm));
                found.push(("learning_rate", *learning_rate));
                found.extend(metrics.iter());
                Some((Phase::Training, found))
            }
            Self::Evaluation {
                loss,
                perplexity,
                metrics,
                ..
            } => {
                let mut found = vec![("loss", *loss)];
                found.extend(perplexity.map(|value| ("perplexity", value)));
                found.extend(metrics.iter());
                Some((Phase::Validation, found))
            }
            Self::Pace {
                tokens_per_second,
                utilization,
                memory_mib,
                device_in_use,
                device_reserved,
                ..
            } => {
                let bytes = |bytes: &Option<u64>| bytes.map(|bytes| bytes as f64);
                let known = [
                    ("tokens_per_second", Some(*tokens_per_second)),
                    ("utilization", *utilization),
                    ("memory_mib", bytes(memory_mib)),
                    ("device_in_use", bytes(device_in_use)),
                    ("device_reserved", bytes(device_reserved)),
                ];
                let known = known.into_iter();
                let found = known.filter_map(|(name, value)| Some((name, value?)));
                Some((Phase::Training, found.collect()))
            }
            Self::Norms { .. }
            | Self::Skipped { .. }
            | Self::Sample { .. }
            | Self::Begun { .. }
            | Self::Checkpoint { .. }
            | Self::CheckpointFailed { .. }
            | Self::Ended { .. } => None,
        }
    }
}
