//! Mixing of several datasets: selects the dataset of each window, as a pure function of the window's index.
//!
//! The datasets are recursively divided into halves, as in a binary tree. Of the first `i` windows of a node, its
//! left half receives `l(i) = floor(share · i + 1/2)` and its right half the others. Window `i` belongs to the left
//! half, as its window `l(i)`, if `l(i + 1) > l(i)`. Otherwise it belongs to the right half, as its window `i -
//! l(i)`. The windows of each dataset are therefore numbered without gaps. After any number of windows each dataset
//! deviates from its share by at most half a window per tree level: half a window for two datasets, less than one
//! window for up to four.

use crate::DataError;

/// Several datasets with their weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// The cumulative sums of the weights, from 0 to the total.
    sums: Vec<f64>,
}

impl Mix {
    /// A mix of datasets in proportion to `weights`, which need not sum to 1.
    ///
    /// # Errors
    /// [`DataError::Value`] if `weights` is empty or a weight is not a positive finite number.
    pub fn new(weights: &[f64]) -> Result<Self, DataError> {
        let wrong = |field, value: String, rule| Err(DataError::Value { field, value, rule });
        if weights.is_empty() {
            let rule = "must have at least one dataset";
            return wrong("mix", "empty".to_owned(), rule);
        }
        let mut sums = vec![0.0];
        let mut sum = 0.0;
        for &weight in weights {
            sum += weight;
            if !(weight > 0.0 && f64::is_finite(sum)) {
                return wrong("weight", weight.to_string(), "must be above 0 and finite");
            }
            sums.push(sum);
        }
        Ok(Self { sums })
    }

    /// The number of datasets.
    pub fn datasets(&self) -> usize {
        self.sums.len() - 1
    }

    /// The fraction of all windows that come from `dataset`, 0 to 1.
    pub fn share(&self, dataset: usize) -> f64 {
        self.relative_weight(dataset, dataset + 1, 0, self.datasets())
    }

    /// Returns the dataset of window `index`, and the window's index within that dataset.
    pub fn locate(&self, index: u64) -> (usize, u64) {
        let (mut first, mut end, mut index) = (0, self.datasets(), index);
        while end - first > 1 {
            let middle = first + (end - first) / 2;
            // The share as a multiple of 2⁻⁶⁴, so that `rounded` is exact for indices of any size.
            let share = (self.relative_weight(first, middle, first, end) * 2f64.powi(64)) as u64;
            let before = rounded(share, index);
            if rounded(share, index.saturating_add(1)) > before {
                (end, index) = (middle, before);
            } else {
                (first, index) = (middle, index - before);
            }
        }
        (first, index)
    }

    /// The weight of the datasets `from..to` relative to the weight of `first..end`.
    fn relative_weight(&self, from: usize, to: usize, first: usize, end: usize) -> f64 {
        (self.sums[to] - self.sums[from]) / (self.sums[end] - self.sums[first])
    }
}

/// `floor(share / 2⁶⁴ · index + 1/2)`.
fn rounded(share: u64, index: u64) -> u64 {
    ((u128::from(share) * u128::from(index) + (1 << 63)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shares_are_exact_at_any_index_and_windows_ordered(
            weights in prop::collection::vec(0.01f64..10.0, 1..9), steps in 1u64..3000,
        ) {
            let mix = Mix::new(&weights).unwrap();
            let total: f64 = weights.iter().sum();
            let levels = weights.len().next_power_of_two().ilog2();
            let mut counts = vec![0u64; weights.len()];
            for index in 0..steps {
                let (dataset, own) = mix.locate(index);
                prop_assert_eq!(own, counts[dataset]);
                counts[dataset] += 1;
                for (&count, weight) in counts.iter().zip(&weights) {
                    let quota = weight / total * (index + 1) as f64;
                    let off = (count as f64 - quota).abs();
                    prop_assert!(off <= 0.5 * f64::from(levels) + 1e-6, "{count}, not {quota}");
                }
            }
        }
    }

    #[test]
    fn weights_of_three_and_one() {
        let mix = Mix::new(&[3.0, 1.0]).unwrap();
        // floor(0.75 i + 0.5) for i = 0 … 8: 0 1 2 2 3 4 5 5 6.
        let datasets: Vec<usize> = (0..8).map(|i| mix.locate(i).0).collect();
        assert_eq!(datasets, [0, 0, 1, 0, 0, 0, 1, 0]);
        assert_eq!(mix.locate(7), (0, 5));
        assert_eq!((mix.share(0), mix.share(1)), (0.75, 0.25));
        // Exact for runs of any length.
        let long = 1u64 << 62;
        assert_eq!(mix.locate(long), (0, long / 4 * 3));
    }

    #[test]
    fn single_dataset_has_all_windows() {
        let mix = Mix::new(&[0.2]).unwrap();
        assert_eq!((mix.share(0), mix.locate(12_345)), (1.0, (0, 12_345)));
    }

    #[test]
    fn invalid_weights_are_rejected() {
        let message = |weights: &[f64]| Mix::new(weights).unwrap_err().to_string();
        for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let expected = format!("`weight` is {weight}: must be above 0 and finite");
            assert_eq!(message(&[1.0, weight]), expected);
        }
        assert!(message(&[f64::MAX, f64::MAX]).contains("above 0 and finite"));
        assert!(message(&[]).contains("at least one dataset"));
    }
}
