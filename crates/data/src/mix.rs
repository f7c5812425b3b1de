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
    /// The number that each node adds before it rounds down, as a multiple of 2⁻⁶⁴, by the middle of its datasets.
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
mod tests;
