//! The checks of a report and their shares of its time.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

use super::finding::{Findings, Outcome};
use super::session::Session;
use super::{benchmarks, comparisons, runs};

emberlm_system::named! {
    /// A check, in the order in which they run.
    #[derive(ValueEnum, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Check {
        /// Each operation against its composed reference.
        Operations = "operations",
        /// A tiny model of each family against the CPU: logits, loss, gradients and greedy tokens.
        Parity = "parity",
        /// The losses of a short run against the CPU's.
        LossCurve = "loss-curve",
        /// A run that is stopped and resumed against one that is not.
        Resume = "resume",
        /// Training speed in each precision, and its utilization.
        Training = "training",
        /// The speed of generation.
        Generation = "generation",
        /// The memory of a training step.
        Memory = "memory",
        /// The same training in PyTorch.
        Pytorch = "pytorch",
    }
}

impl Check {
    /// A sentence that describes the check in the report.
    pub fn description(self) -> &'static str {
        match self {
            Self::Operations => {
                "Relative error of each operation's output and gradients, against the composed operation on the CPU. \
                The output or gradient with the largest error is named."
            }
            Self::Parity => {
                "Relative error of logits, loss, gradients and greedy tokens of each family's model at a tiny size, against \
                the CPU in f32. The one with the largest error is named; a single other token is beyond the bound."
            }
            Self::LossCurve => {
                "The same run from the same seed on the backend and on the CPU, in f32: relative difference of the losses."
            }
            Self::Resume => {
                "A run on the backend, and one that ended at half of its steps and was resumed in another process: relative \
                difference of the losses."
            }
            Self::Training => {
                "Training steps on random tokens, forward, backward and update. Utilization is the model's operations per \
                second over those of a large matrix product in the same precision."
            }
            Self::Generation => {
                "A prompt and the tokens after it, greedy, one sequence, in f32. Each token reads all weights; utilization is \
                relative to the bandwidth that an elementwise operation reaches."
            }
            Self::Memory => {
                "A training step's memory in f32: measured on a device with its own memory, predicted elsewhere."
            }
            Self::Pytorch => {
                "The same training in PyTorch, eager, on the same GPU for cuda, rocm and metal, and on the CPU for the others."
            }
        }
    }

    /// The check's share of the time relative to the other checks.
    fn weight(self) -> f64 {
        match self {
            Self::Operations => 2.0,
            Self::Parity => 4.0,
            Self::LossCurve => 2.0,
            Self::Resume | Self::Training => 2.0,
            Self::Generation | Self::Memory => 1.0,
            Self::Pytorch => 2.0,
        }
    }

    /// Runs the check within the session's time. The error is the reason for an early end.
    pub fn run(self, session: &mut Session) -> Result<Findings, Outcome> {
        match self {
            Self::Operations => comparisons::operations(session),
            Self::Parity => comparisons::parity(session),
            Self::LossCurve => runs::loss_curve(session),
            Self::Resume => runs::resume(session),
            Self::Training => benchmarks::training(session),
            Self::Generation => benchmarks::generation(session),
            Self::Memory => benchmarks::memory(session),
            Self::Pytorch => benchmarks::pytorch(session),
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The fraction of the remaining time that the first of the remaining checks gets. Later checks get the time
/// it does not use.
pub fn share_of_time(left: &[Check]) -> f64 {
    let all: f64 = left.iter().map(|check| check.weight()).sum();
    left.first().map_or(0.0, |first| first.weight() / all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_check_gets_all_remaining_time() {
        let all = Check::value_variants();
        assert!(share_of_time(all) < 0.5);
        assert_eq!(share_of_time(&all[all.len() - 1..]), 1.0);
        assert_eq!(share_of_time(&[]), 0.0);
    }

    #[test]
    fn names_match_the_command_line() {
        for check in Check::value_variants() {
            let value = check.to_possible_value().unwrap();
            assert_eq!(value.get_name(), check.name());
            assert_eq!(
                serde_json::to_value(check).unwrap(),
                serde_json::json!(check.name())
            );
        }
    }
}
