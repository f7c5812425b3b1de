//! The state of a row after some of its logits, and its results after all of them.

use crate::HeadLossOptions;

/// The state of a row after some of its logits.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// The number that is taken from the logits before they are raised to powers of e: not far below the largest.
    pub reference: f32,
    /// `Σ exp(x - reference)`.
    pub sum: f64,
    /// `Σ x`; 0 without label smoothing.
    pub logits: f64,
    /// The target's logit; 0 where it was not among them.
    pub target: f32,
}

impl Default for State {
    fn default() -> Self {
        Self {
            reference: f32::NEG_INFINITY,
            sum: 0.0,
            logits: 0.0,
            target: 0.0,
        }
    }
}

/// A token that is learnt. `exp(x - reference) · coefficient` is `(1 + 2zL) · p`.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The largest of its states' references.
    pub reference: f32,
    /// `(1 + 2zL) / Σ exp(x - reference)`.
    pub coefficient: f32,
    /// The target's part of the gradient by the logits, with its sign turned: `1 - ε`, times a soft cap's slope.
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

/// The derivative of a soft cap `c` at the capped logit `x`: `1 - (x/c)²`.
#[inline(always)]
pub fn slope(x: f32, cap: f32) -> f32 {
    let ratio = x / cap;
    1.0 - ratio * ratio
}
