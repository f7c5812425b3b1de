//! Running means.

/// The terms of a mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::objective) struct Mean {
    sum: f64,
    count: usize,
}

impl Mean {
    pub(in crate::objective) fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    /// Adds 1 if `holds`, and 0 otherwise.
    pub(in crate::objective) fn add_share(&mut self, holds: bool) {
        self.add(f64::from(u8::from(holds)));
    }

    pub(in crate::objective) fn join(&mut self, other: Self) {
        self.sum += other.sum;
        self.count += other.count;
    }

    /// The mean; `None` of nothing.
    pub(in crate::objective) fn value(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// A count, a sum of losses and means as numbers, to exchange them between ranks.
pub(in crate::objective) fn sums_to_numbers<const N: usize>(
    count: usize,
    loss: f64,
    means: [Mean; N],
) -> Vec<f64> {
    let means = means.into_iter();
    let means = means.flat_map(|mean| [mean.sum, mean.count as f64]);
    [count as f64, loss].into_iter().chain(means).collect()
}

/// The count, the sum and the means of [`sums_to_numbers`].
pub(in crate::objective) fn sums_of_numbers<const N: usize>(
    numbers: &[f64],
) -> (usize, f64, [Mean; N]) {
    let number = |at: usize| numbers.get(at).copied().unwrap_or(0.0);
    let mean = |index: usize| Mean {
        sum: number(2 + 2 * index),
        count: number(3 + 2 * index) as usize,
    };
    (number(0) as usize, number(1), std::array::from_fn(mean))
}
