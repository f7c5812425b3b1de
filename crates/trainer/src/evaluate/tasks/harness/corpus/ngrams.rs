//! Counts of n-grams.

use std::collections::HashMap;
use std::hash::Hash;

/// The n-grams of a sequence with their numbers.
pub(super) struct Ngrams<'a, T> {
    counts: HashMap<&'a [T], u64>,
    /// The number of all n-grams.
    pub(super) total: u64,
}

impl<'a, T: Eq + Hash> Ngrams<'a, T> {
    /// Counts the n-grams of `items`, of length `order`.
    pub(super) fn of(items: &'a [T], order: usize) -> Self {
        let (mut counts, mut total) = (HashMap::new(), 0);
        for ngram in items.windows(order) {
            *counts.entry(ngram).or_insert(0) += 1;
            total += 1;
        }
        Self { counts, total }
    }

    /// The number of n-grams that both have.
    pub(super) fn shared(&self, other: &Self) -> u64 {
        let shared = |(ngram, count): (&&[T], &u64)| {
            let other = other.counts.get(ngram).copied().unwrap_or(0);
            other.min(*count)
        };
        self.counts.iter().map(shared).sum()
    }
}
