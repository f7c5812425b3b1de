//! Running means.

/// The terms of a mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Mean {
    sum: f64,
    count: usize,
}

impl Mean {
    pub(super) fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    /// Adds 1 if `holds`, and 0 otherwise.
    pub(super) fn add_share(&mut self, holds: bool) {
        self.add(f64::from(u8::from(holds)));
    }

    /// The sum and the count.
    pub(super) fn to_numbers(self) -> [f64; 2] {
        [self.sum, self.count as f64]
    }

    /// A mean from its sum and count.
    pub(super) fn of_numbers([sum, count]: [f64; 2]) -> Self {
        Self {
            sum,
            count: count as usize,
        }
    }

    pub(super) fn join(&mut self, other: Self) {
        self.sum += other.sum;
        self.count += other.count;
    }

    /// The mean; `None` of nothing.
    pub(super) fn value(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}
