//! Log-probabilities of the model's own distribution: the log-softmax of the raw logits, before temperature,
//! penalties, bias and constraint. OpenAI reports these, as does vLLM with `raw_logprobs`.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::penalties::to_finite;

/// The log-softmax of one row of logits, computed on access.
#[derive(Clone, Copy, Debug)]
pub struct LogProbs<'a> {
    logits: &'a [f32],
    /// The log-sum-exp `ln Σ exp(logit)`.
    normaliser: f64,
}

impl<'a> LogProbs<'a> {
    /// Prepares the log-softmax of finite `logits`, `[vocab_size]`.
    pub fn new(logits: &'a [f32]) -> Self {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let largest = f64::from(largest);
        let sum: f64 = logits.iter().map(|&x| (f64::from(x) - largest).exp()).sum();
        let normaliser = largest + sum.ln();
        Self { logits, normaliser }
    }

    /// The log-probability of `id`. `None` if it is outside the vocabulary.
    pub fn of(&self, id: u32) -> Option<f32> {
        let logit = f64::from(*self.logits.get(id as usize)?);
        Some(to_finite(logit - self.normaliser))
    }

    /// The log-probability of `id` in f64; `None` outside of the vocabulary.
    pub(crate) fn exact(&self, id: u32) -> Option<f64> {
        Some(f64::from(*self.logits.get(id as usize)?) - self.normaliser)
    }

    /// The `count` most probable tokens, or all if there are fewer, with their log-probabilities in
    /// descending order. Ties are broken by the lower id. The capacity of the result is at most `count`.
    pub fn likeliest(&self, count: usize) -> Vec<(u32, f32)> {
        let count = count.min(self.logits.len());
        // The heap's top is the least probable candidate so far.
        let mut found = BinaryHeap::with_capacity(count);
        for (id, &logit) in (0..).zip(self.logits) {
            let candidate = Candidate { id, logit };
            if found.len() < count {
                found.push(candidate);
            } else if let Some(mut least) = found.peek_mut()
                && logit >= least.logit
                && candidate < *least
            {
                *least = candidate;
            }
        }
        let found = found.into_sorted_vec().into_iter();
        let logprob = |logit| to_finite(f64::from(logit) - self.normaliser);
        found
            .map(|token| (token.id, logprob(token.logit)))
            .collect()
    }
}

/// A token with its logit, ordered by descending logit and then ascending id.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: u32,
    logit: f32,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_logit = other.logit.total_cmp(&self.logit);
        by_logit.then(self.id.cmp(&other.id))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}
