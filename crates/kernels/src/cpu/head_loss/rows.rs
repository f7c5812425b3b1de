//! The state of a row after part of its logits, and the result after all of them.

use crate::HeadLossOptions;

/// The state of a row after part of its logits.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// The number subtracted from the logits before exponentiation, at most a little below the largest of them.
    pub reference: f32,
    /// `Σ exp(x - reference)`.
    pub sum: f64,
    /// `Σ x`; 0 without label smoothing.
    pub logits: f64,
    /// The target's logit, or 0 if it has not been among the logits.
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

/// The final result for a token that is not ignored. `exp(x - reference) · coefficient` is `(1 + 2zL) · p`.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The largest reference of its states.
    pub reference: f32,
    /// `(1 + 2zL) / Σ exp(x - reference)`.
    pub coefficient: f32,
    /// The contribution of the target to `-g`: `1 - ε`, times the derivative of a soft cap.
    pub target_grad: f32,
    /// The loss of the token.
    pub loss: f64,
}

impl Row {
    /// Combines the states for all parts of the vocabulary.
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
            target += state.target; // 0 in all states but one
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
            target_grad: (1.0 - smoothing) as f32 * slope,
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
