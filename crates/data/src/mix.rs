//! Mixing of several datasets: selects the dataset of each window, as a pure function of the window's index.
//!
//! The datasets are recursively divided into halves, as in a binary tree. Of the first `i` windows of a node, its
//! left half receives `l(i) = floor(share · i + 1/2)` and its right half the others. Window `i` belongs to the left
//! half, as its window `l(i)`, if `l(i + 1) > l(i)`. Otherwise it belongs to the right half, as its window `i -
//! l(i)`. The windows of each dataset are therefore numbered without gaps. After any number of windows each dataset
//! deviates from its share by at most half a window per tree level: half a window for two datasets, less than one
//! window for up to four.
//!
//! A change of weights begins another stage, whose windows are divided in the same way. The windows of each dataset continue
//! from the stage before. A stage may also continue the division: instead of 1/2, each node adds the fraction that the stage
//! before has left. Over stages of a few windows with changing weights, each dataset then follows the sum of its shares; for
//! two datasets to half a window.

use crate::DataError;

/// Several datasets with their weights, which may change at given windows.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// The stages in the order of their windows. The first one begins at window 0.
    stages: Vec<MixStage>,
}

/// Windows with the same weights.
#[derive(Clone, Debug, PartialEq)]
struct MixStage {
    /// The index of the first window.
    begin: u64,
    /// The windows of each dataset before `begin`.
    before: Vec<u64>,
    /// The cumulative sums of the weights, from 0 to the total.
    sums: Vec<f64>,
    /// What each node adds before it rounds down, as a multiple of 2⁻⁶⁴, by the middle of its datasets.
    offsets: Vec<u64>,
}

/// 1/2 as a multiple of 2⁻⁶⁴.
const HALF: u64 = 1 << 63;

impl Mix {
    /// A mix of datasets in proportion to `weights`, which need not sum to 1.
    ///
    /// # Errors
    /// [`DataError::Value`] if `weights` is empty, a weight is negative or not finite, or all are 0.
    pub fn new(weights: &[f64]) -> Result<Self, DataError> {
        if weights.is_empty() {
            let rule = "must have at least one dataset";
            return Err(wrong("mix", "empty".to_owned(), rule));
        }
        let stage = MixStage::new(
            0,
            vec![0; weights.len()],
            vec![HALF; weights.len()],
            weights,
        )?;
        Ok(Self {
            stages: vec![stage],
        })
    }

    /// The same mix with other weights from window `begin` on. Each dataset continues with its next window.
    ///
    /// Stages are added in the order of their windows. A stage that begins where the one before begins replaces it.
    ///
    /// # Errors
    /// As [`Mix::new`]; also if `weights` are not as many as the datasets, or `begin` is before that of the last stage.
    pub fn with_weights_from(self, begin: u64, weights: &[f64]) -> Result<Self, DataError> {
        let offsets = vec![HALF; self.datasets()];
        self.with_stage(begin, offsets, weights)
    }

    /// The same mix with other weights from window `begin` on, like [`Mix::with_weights_from`], but the division continues.
    /// Weights that change every few windows have the shares that they have on average.
    ///
    /// # Errors
    /// As [`Mix::with_weights_from`].
    pub fn with_weights_continued_from(
        self,
        begin: u64,
        weights: &[f64],
    ) -> Result<Self, DataError> {
        let before = self.stage(begin.saturating_sub(1));
        let offsets = before.divided(begin).1;
        self.with_stage(begin, offsets, weights)
    }

    fn with_stage(
        mut self,
        begin: u64,
        offsets: Vec<u64>,
        weights: &[f64],
    ) -> Result<Self, DataError> {
        if weights.len() != self.datasets() {
            let rule = "must be one per dataset";
            return Err(wrong("weights", format!("{weights:?}"), rule));
        }
        let last = self.stages.last().map_or(0, |stage| stage.begin);
        if begin < last {
            let rule = "must be at or after the window of the change before";
            return Err(wrong("begin", begin.to_string(), rule));
        }
        let stage = MixStage::new(begin, self.counts(begin), offsets, weights)?;
        self.stages.truncate(self.begun_before(begin));
        self.stages.push(stage);
        Ok(self)
    }

    /// The number of datasets.
    pub fn datasets(&self) -> usize {
        self.stages[0].before.len()
    }

    /// The fraction of the windows that come from `dataset`, 0 to 1, at window `index`.
    pub fn share(&self, dataset: usize, index: u64) -> f64 {
        let stage = self.stage(index);
        stage.relative_weight(dataset, dataset + 1, 0, self.datasets())
    }

    /// The number of windows of each dataset among the first `windows`.
    pub fn counts(&self, windows: u64) -> Vec<u64> {
        // The stage of the last of them, so that a change at `windows` has no effect.
        self.stage(windows.saturating_sub(1)).divided(windows).0
    }

    /// Returns the dataset of window `index`, and the window's index within that dataset.
    pub fn locate(&self, index: u64) -> (usize, u64) {
        let stage = self.stage(index);
        let (dataset, own) = stage.locate(index - stage.begin);
        (dataset, stage.before[dataset].wrapping_add(own))
    }

    /// The stage of window `index`.
    fn stage(&self, index: u64) -> &MixStage {
        let begun = self.begun_before(index.saturating_add(1));
        &self.stages[begun.saturating_sub(1)]
    }

    /// The number of stages that begin before window `index`.
    fn begun_before(&self, index: u64) -> usize {
        self.stages.partition_point(|stage| stage.begin < index)
    }
}

impl MixStage {
    fn new(
        begin: u64,
        before: Vec<u64>,
        offsets: Vec<u64>,
        weights: &[f64],
    ) -> Result<Self, DataError> {
        let mut sums = vec![0.0];
        let mut sum = 0.0;
        for &weight in weights {
            sum += weight;
            if !(weight >= 0.0 && f64::is_finite(sum)) {
                let rule = "must be at least 0 and finite";
                return Err(wrong("weight", weight.to_string(), rule));
            }
            sums.push(sum);
        }
        if sum <= 0.0 {
            let rule = "must have a weight above 0";
            return Err(wrong("weights", format!("{weights:?}"), rule));
        }
        Ok(Self {
            begin,
            before,
            sums,
            offsets,
        })
    }

    /// Returns the dataset of the stage's window `index`, and the window's index within that dataset in this stage.
    fn locate(&self, mut index: u64) -> (usize, u64) {
        let (mut first, mut end) = (0, self.before.len());
        while end - first > 1 {
            let (middle, share) = self.halves(first, end);
            let before = self.left(middle, share, index).0;
            if self.left(middle, share, index.saturating_add(1)).0 > before {
                (end, index) = (middle, before);
            } else {
                (first, index) = (middle, index - before);
            }
        }
        (first, index)
    }

    /// The number of windows of each dataset among the first `windows` of the run, of which the last is in this stage, and the
    /// offsets with which a stage continues after them.
    fn divided(&self, windows: u64) -> (Vec<u64>, Vec<u64>) {
        let mut counts = self.before.clone();
        let mut offsets = self.offsets.clone();
        let mut open = vec![(0, counts.len(), windows - self.begin)];
        while let Some((first, end, windows)) = open.pop() {
            if end - first == 1 {
                counts[first] += windows;
                continue;
            }
            let (middle, share) = self.halves(first, end);
            let (left, rest) = self.left(middle, share, windows);
            offsets[middle] = rest;
            open.extend([(first, middle, left), (middle, end, windows - left)]);
        }
        (counts, offsets)
    }

    /// `floor(share / 2⁶⁴ · windows + offset)` of the node with this middle, and the fraction that is left.
    fn left(&self, middle: usize, share: u128, windows: u64) -> (u64, u64) {
        let sum = share * u128::from(windows) + u128::from(self.offsets[middle]);
        ((sum >> 64) as u64, sum as u64)
    }

    /// The middle of the datasets `first..end`, and the share of the datasets before it as a multiple of 2⁻⁶⁴, at most 2⁶⁴, so
    /// that [`MixStage::left`] is exact for indices of any size. A half without weight has no windows.
    fn halves(&self, first: usize, end: usize) -> (usize, u128) {
        let middle = first + (end - first) / 2;
        let share = self.relative_weight(first, middle, first, end);
        (middle, (share * 2f64.powi(64)) as u128)
    }

    /// The weight of the datasets `from..to` relative to the weight of `first..end`.
    fn relative_weight(&self, from: usize, to: usize, first: usize, end: usize) -> f64 {
        (self.sums[to] - self.sums[from]) / (self.sums[end] - self.sums[first])
    }
}

fn wrong(field: &'static str, value: String, rule: &'static str) -> DataError {
    DataError::Value { field, value, rule }
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

    proptest! {
        #[test]
        fn shares_of_each_stage_are_exact_and_datasets_continue(
            stages in prop::collection::vec((0u64..400, prop::collection::vec(0u32..5, 5)), 0..5),
        ) {
            let mut mix = Mix::new(&[1.0, 0.0, 3.0, 0.0, 0.0]).unwrap();
            let mut begins = vec![(0, vec![1.0, 0.0, 3.0, 0.0, 0.0])];
            let mut begin = 0;
            for (length, weights) in stages {
                let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
                if weights.iter().sum::<f64>() == 0.0 {
                    continue;
                }
                begin += length;
                mix = mix.with_weights_from(begin, &weights).unwrap();
                begins.retain(|(other, _)| *other < begin);
                begins.push((begin, weights));
            }
            let mut counts = vec![0; 5];
            let mut before = counts.clone();
            for index in 0..begin + 100 {
                let (begin, weights) = begins.iter().rfind(|(begin, _)| *begin <= index).unwrap();
                if index == *begin {
                    before = counts.clone();
                }
                let (dataset, own) = mix.locate(index);
                prop_assert_eq!(own, counts[dataset]);
                counts[dataset] += 1;
                prop_assert_eq!(&mix.counts(index + 1), &counts);
                for (dataset, weight) in weights.iter().enumerate() {
                    let share = weight / weights.iter().sum::<f64>();
                    prop_assert!((mix.share(dataset, index) - share).abs() < 1e-12);
                    let found = (counts[dataset] - before[dataset]) as f64;
                    let off = (found - share * (index + 1 - begin) as f64).abs();
                    prop_assert!(off <= 1.5 + 1e-6 && (share > 0.0 || found == 0.0));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn continued_stages_follow_the_sum_of_the_shares(
            lengths in prop::collection::vec(0u64..9, 1..60),
            ends in prop::collection::vec((0u32..4, 0u32..4), 2..6),
        ) {
            let weights = |at: f64| -> Vec<f64> {
                let at = |&(from, to): &(u32, u32)| f64::from(from) * (1.0 - at) + f64::from(to) * at;
                ends.iter().map(at).collect()
            };
            prop_assume!([0.0, 1.0].iter().all(|&at| weights(at).iter().sum::<f64>() > 0.0));
            let datasets = ends.len();
            let mut mix = Mix::new(&vec![1.0; datasets]).unwrap();
            let (start, mut begin) = (lengths[0], lengths[0]);
            mix = mix.with_weights_from(begin, &weights(0.0)).unwrap();
            for (step, length) in lengths.iter().enumerate() {
                begin += length;
                let at = (step + 1) as f64 / lengths.len() as f64;
                mix = mix.with_weights_continued_from(begin, &weights(at)).unwrap();
            }
            // Half a window for two datasets. Further levels also move with the rounding of the one above.
            let bound = [0.5, 0.5, 1.5, 1.5, 3.5][datasets - 1] + 1e-6;
            let before = mix.counts(start);
            let mut totals = vec![0.0; datasets];
            let mut counts = vec![0u64; datasets];
            for index in 0..begin + 30 {
                let (dataset, own) = mix.locate(index);
                prop_assert_eq!(own, counts[dataset]);
                prop_assert!(mix.share(dataset, index) > 0.0);
                counts[dataset] += 1;
                prop_assert_eq!(&mix.counts(index + 1), &counts);
                if index < start {
                    continue;
                }
                for (dataset, total) in totals.iter_mut().enumerate() {
                    *total += mix.share(dataset, index);
                    let off = ((counts[dataset] - before[dataset]) as f64 - *total).abs();
                    prop_assert!(off <= bound, "{off} of {datasets} at {index}");
                }
            }
        }
    }

    #[test]
    fn a_continued_stage_keeps_the_fraction() {
        let thirds = Mix::new(&[1.0, 2.0]).unwrap();
        let continued = |mix: Mix, begin| mix.with_weights_continued_from(begin, &[1.0, 2.0]);
        // The same weights in stages of one window divide as one stage does.
        let stages = (1..20).try_fold(thirds.clone(), continued).unwrap();
        let of = |mix: &Mix| (0..40).map(|at| mix.locate(at)).collect::<Vec<_>>();
        assert_eq!(of(&stages), of(&thirds));
        // Without the fraction, the first dataset has no window.
        let begun = |mix: Mix, begin| mix.with_weights_from(begin, &[1.0, 2.0]);
        let stages = (1..20).try_fold(thirds, begun).unwrap();
        assert_eq!(stages.counts(20), [0, 20]);
        // The fraction 0 before a stage with one dataset.
        let mix = Mix::new(&[1.0, 1.0]).unwrap();
        let mix = mix.with_weights_continued_from(1, &[1.0, 0.0]).unwrap();
        assert_eq!(mix.counts(9), [9, 0]);
    }

    #[test]
    fn weights_change_at_a_window() {
        let mix = Mix::new(&[3.0, 1.0]).unwrap();
        let mix = mix.with_weights_from(8, &[1.0, 1.0]).unwrap();
        let mix = mix.with_weights_from(12, &[0.0, 1.0]).unwrap();
        let datasets: Vec<usize> = (0..15).map(|i| mix.locate(i).0).collect();
        assert_eq!(datasets, [0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 1, 1, 1, 1]);
        assert_eq!((mix.locate(8), mix.locate(14)), ((0, 6), (1, 6)));
        assert_eq!(
            [8, 12, 20].map(|windows| mix.counts(windows)),
            [[6, 2], [8, 4], [8, 12]]
        );
    }

    #[test]
    fn weights_of_three_and_one() {
        let mix = Mix::new(&[3.0, 1.0]).unwrap();
        // floor(0.75 i + 0.5) for i = 0 … 8: 0 1 2 2 3 4 5 5 6.
        let datasets: Vec<usize> = (0..8).map(|i| mix.locate(i).0).collect();
        assert_eq!(datasets, [0, 0, 1, 0, 0, 0, 1, 0]);
        assert_eq!(mix.locate(7), (0, 5));
        assert_eq!([0, 1].map(|of| mix.share(of, 0)), [0.75, 0.25]);
        // Exact for runs of any length.
        let long = 1u64 << 62;
        assert_eq!(mix.locate(long), (0, long / 4 * 3));
    }

    #[test]
    fn single_dataset_has_all_windows() {
        let mix = Mix::new(&[0.2]).unwrap();
        assert_eq!((mix.share(0, 0), mix.locate(12_345)), (1.0, (0, 12_345)));
    }

    #[test]
    fn invalid_weights_are_rejected() {
        let message = |weights: &[f64]| Mix::new(weights).unwrap_err().to_string();
        for weight in [-1.0, f64::NAN, f64::INFINITY] {
            let expected = format!("`weight` is {weight}: must be at least 0 and finite");
            assert_eq!(message(&[1.0, weight]), expected);
        }
        assert!(message(&[f64::MAX, f64::MAX]).contains("at least 0 and finite"));
        assert!(message(&[]).contains("at least one dataset"));
        let expected = "`weights` is [0.0, 0.0]: must have a weight above 0";
        assert_eq!(message(&[0.0, 0.0]), expected);
        let mix = Mix::new(&[1.0, 2.0]).unwrap();
        let mix = mix.with_weights_from(8, &[2.0, 1.0]).unwrap();
        let message = |begin, weights: &[f64]| {
            let changed = mix.clone().with_weights_from(begin, weights);
            changed.unwrap_err().to_string()
        };
        let expected = "`weights` is [1.0]: must be one per dataset";
        assert_eq!(message(9, &[1.0]), expected);
        let expected = "`begin` is 7: must be at or after the window of the change before";
        assert_eq!(message(7, &[1.0, 1.0]), expected);
    }
}
