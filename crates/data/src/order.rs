//! The order of training windows: a pure function of seed and index. It needs no stored state, and a resumed run
//! continues exactly.
//!
//! In each epoch the tokens are divided into adjacent windows of `seq_len` predicted tokens, starting at a different
//! offset so that window boundaries vary. Within the epoch the order is a keyed permutation of the window indices: a
//! Feistel network over the smallest even number of bits that holds every index, with cycle walking until the result
//! is a valid index (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).

use emberlm_system::random::split_mix;

use crate::DataError;

/// Enough rounds for every bit of the result to depend on every bit of the index.
const ROUNDS: u64 = 8;

/// A seeded order of `count` items, different in each epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shuffle {
    seed: u64,
    count: u64,
}

impl Shuffle {
    /// The order of `count` items; 0 counts as 1.
    pub fn new(seed: u64, count: u64) -> Self {
        Self {
            seed,
            count: count.max(1),
        }
    }

    /// The number of items.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The item at `index`, which continues across epochs.
    pub fn at(&self, index: u64) -> u64 {
        permute(index % self.count, self.count, self.key(index))
    }

    /// The key of the epoch that contains `index`.
    fn key(&self, index: u64) -> u64 {
        split_mix(split_mix(self.seed) ^ (index / self.count))
    }
}

/// The order of training windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowOrder {
    seq_len: u64,
    /// The order of the windows of an epoch. Each epoch has as many windows as fit at the largest offset.
    windows: Shuffle,
    /// The number of possible offsets.
    offsets: u64,
}

impl WindowOrder {
    /// The order of windows of `seq_len` predicted tokens (`seq_len + 1` tokens in all) over a split of `tokens`.
    ///
    /// # Errors
    /// [`DataError::TooShort`] if not even one window fits; [`DataError::Value`] if `seq_len` is 0.
    pub fn new(seed: u64, tokens: u64, seq_len: u64) -> Result<Self, DataError> {
        check_seq_len(seq_len)?;
        if tokens <= seq_len {
            return Err(DataError::TooShort { tokens, seq_len });
        }
        // `tokens / seq_len - 1` windows and the token after them fit at every offset below `seq_len`. With fewer
        // tokens than two windows need, this would be 0: use one window and all offsets at which it fits.
        let windows = ((tokens - seq_len) / seq_len).max(1);
        let offsets = (tokens - windows * seq_len).min(seq_len);
        Ok(Self {
            seq_len,
            windows: Shuffle::new(seed, windows),
            offsets,
        })
    }

    /// The number of windows per epoch, at least 1.
    pub fn windows_per_epoch(&self) -> u64 {
        self.windows.count()
    }

    /// The window's length in predicted tokens.
    pub fn seq_len(&self) -> u64 {
        self.seq_len
    }

    /// The first token of the window at `index`, which counts windows since the start of the run.
    pub fn start(&self, index: u64) -> u64 {
        let offset = scale(split_mix(self.windows.key(index)), self.offsets);
        offset + self.windows.at(index) * self.seq_len
    }
}

/// Checks that `seq_len` is positive.
pub(crate) fn check_seq_len(seq_len: u64) -> Result<(), DataError> {
    match seq_len {
        0 => Err(DataError::Value {
            field: "seq_len",
            value: seq_len.to_string(),
            rule: "must be at least 1",
        }),
        _ => Ok(()),
    }
}

/// Scales 64 random bits to `[0, below)`.
fn scale(bits: u64, below: u64) -> u64 {
    ((u128::from(bits) * u128::from(below)) >> 64) as u64
}

/// The permutation of `[0, count)` chosen by `key`, evaluated at `index`.
fn permute(index: u64, count: u64, key: u64) -> u64 {
    let bits = 64 - (count - 1).leading_zeros();
    let half = bits.div_ceil(2).max(1);
    let mut value = index;
    // The network permutes up to four times as many values. Following its cycle until the next valid index yields a
    // permutation of the indices.
    loop {
        value = feistel(value, half, key);
        if value < count {
            return value;
        }
    }
}

/// A permutation of `[0, 2^(2·half))`.
fn feistel(value: u64, half: u32, key: u64) -> u64 {
    let mask = (1u64 << half) - 1;
    let (mut left, mut right) = (value >> half, value & mask);
    for round in 0..ROUNDS {
        let noise = split_mix(key ^ split_mix((round << 32) | right)) >> (64 - half);
        (left, right) = (right, left ^ noise);
    }
    (left << half) | right
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn starts(order: &WindowOrder, epoch: u64) -> Vec<u64> {
        let n = order.windows_per_epoch();
        (epoch * n..(epoch + 1) * n)
            .map(|i| order.start(i))
            .collect()
    }

    proptest! {
        #[test]
        fn epoch_has_every_window_once_within_the_tokens(
            seed: u64, tokens in 2u64..3000, seq_len in 1u64..70, epoch in 0u64..1 << 40,
        ) {
            prop_assume!(tokens > seq_len);
            let order = WindowOrder::new(seed, tokens, seq_len).unwrap();
            let mut starts = starts(&order, epoch);
            starts.sort();
            prop_assert!(starts[0] < seq_len);
            prop_assert!(starts.windows(2).all(|pair| pair[1] - pair[0] == seq_len));
            prop_assert!(starts.last().unwrap() + seq_len < tokens);
            // An epoch omits fewer tokens than two windows have.
            prop_assert!(tokens - starts.len() as u64 * seq_len <= 2 * seq_len);
        }
    }

    #[test]
    fn order_is_a_function_of_seed_and_index() {
        let order = WindowOrder::new(7, 100_000, 10).unwrap();
        assert_eq!(order, WindowOrder::new(7, 100_000, 10).unwrap());
        assert_ne!(starts(&order, 0), starts(&order, 1));
        let other = WindowOrder::new(8, 100_000, 10).unwrap();
        assert_ne!(starts(&order, 0), starts(&other, 0));
        // Exact values, because a change would alter the order of every resumed run.
        let first: Vec<u64> = (0..4).map(|i| order.start(i)).collect();
        assert_eq!(first, GOLDEN);
    }

    const GOLDEN: [u64; 4] = [32_576, 69_816, 98_926, 43_396];

    #[test]
    fn single_window_repeats() {
        let order = WindowOrder::new(1, 9, 8).unwrap();
        assert!((0..100).all(|i| order.start(i) == 0));
        // With spare tokens its offset varies, but it stays within the split.
        let order = WindowOrder::new(1, 12, 8).unwrap();
        let starts: std::collections::BTreeSet<u64> = (0..200).map(|i| order.start(i)).collect();
        assert_eq!(starts.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn dataset_shorter_than_a_window_error_names_both_lengths() {
        let message = WindowOrder::new(0, 64, 64).unwrap_err().to_string();
        assert_eq!(
            message,
            "a sequence of 64 needs 65 tokens, but the split has 64"
        );
        assert!(WindowOrder::new(0, 0, 1).is_err());
        assert!(WindowOrder::new(0, 5, u64::MAX).is_err());
    }

    #[test]
    fn zero_window_length_is_an_error() {
        let message = WindowOrder::new(0, 64, 0).unwrap_err().to_string();
        assert_eq!(message, "`seq_len` is 0: must be at least 1");
    }

    #[test]
    fn offsets_and_windows_are_uniform() {
        let order = WindowOrder::new(3, 1_000, 10).unwrap();
        let (epochs, n) = (9_900, order.windows_per_epoch());
        let mut offsets = [0u32; 10];
        let mut firsts = vec![0u32; n as usize];
        for epoch in 0..epochs {
            let start = order.start(epoch * n);
            offsets[(start % 10) as usize] += 1;
            firsts[(start / 10) as usize] += 1;
        }
        // The chi-squared statistic per degree of freedom is about 1. The bounds are six standard deviations away.
        assert!(chi_squared(&offsets) / 9.0 < 3.9);
        assert!(chi_squared(&firsts) / 98.0 < 1.9);
    }

    fn chi_squared(counts: &[u32]) -> f64 {
        let total: u32 = counts.iter().sum();
        let expected = f64::from(total) / counts.len() as f64;
        let terms = counts
            .iter()
            .map(|&c| (f64::from(c) - expected).powi(2) / expected);
        terms.sum()
    }

    #[test]
    fn adjacent_windows_in_the_order_are_not_adjacent_in_the_text() {
        let order = WindowOrder::new(11, 1_000_000, 10).unwrap();
        let starts = starts(&order, 0);
        let near = starts
            .windows(2)
            .filter(|pair| pair[0].abs_diff(pair[1]) <= 1_000)
            .count();
        // In a random order, 2 * 100 of 100,000 positions are as near, which gives about 200 of the pairs.
        assert!((100..300).contains(&near), "{near}");
    }
}
