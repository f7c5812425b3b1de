//! The server's resident memory during an attack, and its growth.
//!
//! Allocators keep freed memory, and the first requests of each size add to it. Growth is therefore measured
//! after the first fifth of the run: from the mean of the following tenth to the mean of the last tenth.

use std::fmt;

/// The allowed growth in the last four fifths of a run: a twentieth of the memory plus 8 MiB. A small server's
/// memory varies by a few MiB with the running requests.
const ALLOWED_PART: f64 = 0.05;
const ALLOWED_MIB: f64 = 8.0;

/// Memory in MiB, sampled at regular intervals.
#[derive(Clone, Debug, Default)]
pub struct Footprint(Vec<f64>);

/// The growth of the memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// MiB after a fifth of the run.
    pub early: f64,
    /// MiB at the end.
    pub late: f64,
    /// The highest sample in MiB.
    pub peak: f64,
    /// The allowed growth in MiB.
    pub allowed: f64,
}

impl Footprint {
    /// Adds a sample in bytes, if the operating system reports it.
    pub fn add(&mut self, bytes: Option<u64>) {
        self.0
            .extend(bytes.map(|bytes| bytes as f64 / f64::from(1 << 20)));
    }

    /// The growth. `None` if there are too few samples.
    pub fn growth(&self) -> Option<Growth> {
        let tenth = self.0.len() / 10;
        if tenth == 0 {
            return None;
        }
        let mean = |samples: &[f64]| samples.iter().sum::<f64>() / samples.len() as f64;
        let early = mean(&self.0[2 * tenth..3 * tenth]);
        Some(Growth {
            early,
            late: mean(&self.0[self.0.len() - tenth..]),
            peak: self.0.iter().copied().fold(0.0, f64::max),
            allowed: early * ALLOWED_PART + ALLOWED_MIB,
        })
    }
}

impl Growth {
    /// Returns true if the growth exceeds the allowed growth.
    pub fn is_leak(&self) -> bool {
        self.grown() > self.allowed
    }

    fn grown(&self) -> f64 {
        self.late - self.early
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            early,
            late,
            peak,
            allowed,
        } = self;
        let grown = self.grown();
        write!(
            f,
            "{early:.1} → {late:.1} MiB ({grown:+.1}, allowed {allowed:.1}; peak {peak:.1})"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_growth_after_the_first_requests_is_a_leak() {
        let growth = |mib: &dyn Fn(u64) -> u64, samples| {
            let mut footprint = Footprint::default();
            (0..samples).for_each(|sample| footprint.add(Some(mib(sample) << 20)));
            footprint.growth()
        };
        let steady = growth(&|sample| 100 + sample, 100).unwrap();
        assert_eq!((steady.early, steady.grown()), (124.5, 70.0));
        assert!(steady.is_leak());
        let warm = growth(&|sample| if sample < 20 { 10 * sample } else { 200 }, 100).unwrap();
        assert_eq!((warm.early, warm.late), (200.0, 200.0));
        assert!(!warm.is_leak());
        assert_eq!(growth(&|sample| sample, 3), None);
    }
}
