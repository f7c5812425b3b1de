//! Detects whether a finished run has diverged.

use std::fmt;

use crate::checkpoint::State;
use crate::report::events::Event;

/// A sign that a run has diverged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Divergence {
    /// Every step was skipped, so the weights are still the initial ones.
    AllSkipped {
        /// The number of steps.
        steps: usize,
    },
    /// The last validation loss is not finite.
    NotFinite,
    /// The last steps of the run were all skipped.
    StillSkipping {
        /// The number of consecutive skipped steps.
        steps: usize,
    },
    /// The last training losses are far above the first one.
    LossAboveStart {
        /// The first logged loss, in nats per token.
        first: f64,
        /// The mean of the last logged losses.
        last: f64,
    },
}

/// The number of last losses whose mean is compared with the first loss.
const LAST: usize = 5;
/// A run has diverged if its final loss exceeds the first one by this factor. Batches differ by less.
const FACTOR: f64 = 1.2;
/// A run has diverged if it ends with at least this many consecutive skipped steps.
const IN_A_ROW: usize = 3;

impl Divergence {
    /// The first sign of divergence in the state and the events of a run.
    pub fn of(state: &State, events: &[Event]) -> Option<Self> {
        let skipped = state.watch.total();
        if state.step > 0 && skipped >= state.step {
            return Some(Self::AllSkipped { steps: state.step });
        }
        if state.validation_loss.is_some_and(|loss| !loss.is_finite()) {
            return Some(Self::NotFinite);
        }
        let steps = state.watch.in_a_row();
        if steps >= IN_A_ROW {
            return Some(Self::StillSkipping { steps });
        }
        let losses = events.iter().filter_map(|event| match event {
            // The loss of sampled completions is about 0 throughout.
            Event::Step { loss, metrics, .. } if metrics.get("reward").is_none() => Some(*loss),
            _ => None,
        });
        let losses: Vec<f64> = losses.collect();
        let first = *losses.first()?;
        let rest = losses.len().checked_sub(LAST).filter(|&rest| rest > 0)?;
        let last = losses[rest..].iter().sum::<f64>() / LAST as f64;
        (last > FACTOR * first).then_some(Self::LossAboveStart { first, last })
    }

    /// Returns true if the model is unusable, not just likely worse than before.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::AllSkipped { .. } | Self::NotFinite)
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllSkipped { steps } => write!(
                f,
                "the run diverged: all of its {steps} steps were skipped, and the weights are the initial ones"
            ),
            Self::NotFinite => {
                write!(
                    f,
                    "the run diverged: its last validation loss is not finite"
                )
            }
            Self::StillSkipping { steps } => write!(
                f,
                "the run may have diverged: its last {steps} steps were skipped"
            ),
            Self::LossAboveStart { first, last } => write!(
                f,
                "the run may have diverged: its loss began at {first:.4} and ended at {last:.4}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SkipConfig;

    fn step(step: usize, loss: f64) -> Event {
        Event::Step {
            step,
            tokens: 0,
            learnt: None,
            loss,
            perplexity: Some(loss.exp()),
            gradient_norm: 1.0,
            learning_rate: 1e-3,
            metrics: Default::default(),
        }
    }

    fn of_losses(losses: &[f64]) -> Option<Divergence> {
        let state = State {
            step: losses.len(),
            validation_loss: Some(1.0),
            ..State::default()
        };
        let events: Vec<_> = (1..)
            .zip(losses)
            .map(|(at, &loss)| step(at, loss))
            .collect();
        Divergence::of(&state, &events)
    }

    #[test]
    fn a_final_loss_far_above_the_first_is_detected() {
        assert_eq!(of_losses(&[4.0, 3.0, 2.0, 2.0, 2.0, 2.0]), None);
        // Noise, and too few steps to judge.
        assert_eq!(of_losses(&[2.0, 2.3, 2.1, 2.4, 2.2, 2.3]), None);
        assert_eq!(of_losses(&[2.0, 9.0]), None);
        let found = of_losses(&[4.0, 6.0, 8.0, 8.0, 8.0, 8.0]);
        let expected = Divergence::LossAboveStart {
            first: 4.0,
            last: 7.6,
        };
        assert_eq!(found, Some(expected));
        assert!(!expected.is_failure());
    }

    #[test]
    fn skipped_steps_and_a_non_finite_loss_are_detected() {
        let config = SkipConfig::default();
        let mut state = State::default();
        for _ in 0..4 {
            state.step += 1;
            state.watch.judge(f64::NAN, 1.0, &config);
        }
        let found = Divergence::of(&state, &[]);
        assert_eq!(found, Some(Divergence::AllSkipped { steps: 4 }));
        assert!(found.unwrap().is_failure());
        state.step += 6;
        let found = Divergence::of(&state, &[]);
        assert_eq!(found, Some(Divergence::StillSkipping { steps: 4 }));
        state.validation_loss = Some(f64::INFINITY);
        let found = Divergence::of(&state, &[]).unwrap();
        assert!(found == Divergence::NotFinite && found.is_failure());
    }
}
