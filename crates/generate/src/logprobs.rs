//! Log-probabilities of a model's own distribution: the log-softmax of its logits as they are, before temperature,
//! penalties, bias and constraint (OpenAI's, and vLLM's `raw_logprobs`).

use std::cmp::Ordering;

use crate::penalties::to_finite;

/// The log-softmax of one row of logits, looked at where it is wanted.
#[derive(Clone, Copy, Debug)]
pub struct LogProbs<'a> {
    logits: &'a [f32],
    /// `ln Σ exp(logit)`.
    normaliser: f64,
}

impl<'a> LogProbs<'a> {
    /// Of `logits` `[vocab_size]`, which are finite.
    pub fn new(logits: &'a [f32]) -> Self {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let largest = f64::from(largest);
        let sum: f64 = logits.iter().map(|&x| (f64::from(x) - largest).exp()).sum();
        let normaliser = largest + sum.ln();
        Self { logits, normaliser }
    }

    /// The log-probability of `id`; none outside of the vocabulary.
    pub fn of(&self, id: u32) -> Option<f32> {
        let logit = f64::from(*self.logits.get(id as usize)?);
        Some(to_finite(logit - self.normaliser))
    }

    /// The `count` likeliest tokens with their log-probabilities, likeliest first, the lower id first among equals; all
    /// where there are fewer.
    pub fn likeliest(&self, count: usize) -> Vec<(u32, f32)> {
        let likelier = |a: &(u32, f32), b: &(u32, f32)| -> Ordering {
            b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
        };
        if count == 0 {
            return Vec::new();
        }
        let mut tokens: Vec<(u32, f32)> = (0..).zip(self.logits.iter().copied()).collect();
        if count < tokens.len() {
            tokens.select_nth_unstable_by(count - 1, likelier);
            tokens.truncate(count);
        }
        tokens.sort_unstable_by(likelier);
        for (_, value) in &mut tokens {
            *value = to_finite(f64::from(*value) - self.normaliser);
        }
        tokens
    }
}
