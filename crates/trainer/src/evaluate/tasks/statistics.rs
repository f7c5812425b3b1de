//! Means with standard errors.

use crate::report::spread::Spread;

/// A value with its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// The standard error. `None` for a single item.
    pub stderr: Option<f64>,
}

impl Estimate {
    /// The mean of `values` with the standard error `s / √n`, where `s² = Σ (x - mean)² / (n - 1)`, as in
    /// lm-evaluation-harness. For a proportion `p`, this is `√(p (1 - p) / (n - 1))`.
    pub(super) fn mean(values: impl IntoIterator<Item = f64, IntoIter: Clone>) -> Self {
        let values = values.into_iter();
        let count = values.clone().count() as f64;
        let Spread { mean, deviation } = Spread::of(values);
        Self {
            value: mean,
            stderr: (count > 1.0).then(|| deviation / count.sqrt()),
        }
    }

    /// The proportion of `hits` that are true.
    pub(super) fn share(hits: impl IntoIterator<Item = bool, IntoIter: Clone>) -> Self {
        Self::mean(hits.into_iter().map(f64::from))
    }

    /// The exponential of the estimate. The standard error follows from the delta method, `exp(mean) ·
    /// stderr(mean)`: the limit of the harness's bootstrap for many items, without its randomness.
    pub(super) fn exp(self) -> Self {
        let value = self.value.exp();
        Self {
            value,
            stderr: self.stderr.map(|stderr| value * stderr),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_error_of_a_share() {
        let found = Estimate::share([true, false, false, true, false]);
        assert!((found.value - 0.4).abs() < 1e-12);
        // √(0.4 · 0.6 / 4)
        assert!((found.stderr.unwrap() - 0.06f64.sqrt()).abs() < 1e-12);
        assert_eq!(Estimate::share([true]).stderr, None);
    }

    #[test]
    fn the_standard_error_of_a_perplexity() {
        // Mean 2, variance (1 + 0 + 1) / 2 = 1, standard error √(1 / 3).
        let found = Estimate::mean([1.0, 2.0, 3.0]).exp();
        let e2 = std::f64::consts::E.powi(2);
        assert!((found.value - e2).abs() < 1e-9);
        assert!((found.stderr.unwrap() - e2 / 3f64.sqrt()).abs() < 1e-9);
    }
}
