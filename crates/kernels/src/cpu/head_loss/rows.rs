//! What is known of a row once all of its logits have been seen.

use super::tile::{State, slope};
use crate::HeadLossOptions;

/// A token that is learnt. `exp(x - reference) · coefficient` is `(1 + 2zL) · p`.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The largest of its states' references.
    pub reference: f32,
    /// `(1 + 2zL) / Σ exp(x - reference)`.
    pub coefficient: f32,
    /// What the target's part of the gradient by the logits is, with its sign turned: `1 - ε`, times a soft cap's slope.
    pub pull: f32,
    /// Its loss.
    pub loss: f64,
}

impl Row {
    /// From its states in all parts of a vocabulary.
    pub fn new<'a>(
        states: impl Iterator<Item = &'a State> + Clone,
        vocab: usize,
        options: HeadLossOptions,
    ) -> Self {
        let largest = |a: f32, state: &State| {
            if state.reference > a {
                state.reference
            } else {
                a
            }
        };
        let reference = states.clone().fold(f32::NEG_INFINITY, largest);
        let (mut sum, mut logits, mut target) = (0.0, 0.0, 0.0);
        for state in states {
            sum += state.sum * f64::from(state.reference - reference).exp();
            logits += state.logits;
            target += state.target; // 0 in all but one
        }
        let log_sum = sum.ln() + f64::from(reference);
        let smoothing = options.label_smoothing;
        let loss =
            log_sum - (1.0 - smoothing) * f64::from(target) - smoothing * logits / vocab as f64
                + options.z_loss * log_sum * log_sum;
        let cap = options.soft_cap as f32;
        let slope = if cap > 0.0 { slope(target, cap) } else { 1.0 };
        Self {
            reference,
            coefficient: ((1.0 + 2.0 * options.z_loss * log_sum) / sum) as f32,
            pull: (1.0 - smoothing) as f32 * slope,
            loss,
        }
    }
}
