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

    /// The mean of the estimates of parts, weighted by their numbers of items or not, with the standard error of
    /// lm-evaluation-harness: pooled over the items (`pooled_sample_stderr`) or that of independent parts
    /// (`unweighted_mean_stderr`). It is `None` if a part has none.
    pub(super) fn aggregate(parts: &[(Self, usize)], by_size: bool) -> Self {
        let count = parts.len() as f64;
        let items: f64 = parts.iter().map(|(_, items)| *items as f64).sum();
        let weight = |items: usize| if by_size { items as f64 } else { 1.0 };
        let total = if by_size { items } else { count };
        let values = parts
            .iter()
            .map(|(part, items)| part.value * weight(*items));
        let variance = |(part, own): &(Self, usize)| {
            let (variance, own) = (part.stderr?.powi(2), *own as f64);
            Some(match by_size {
                true => (own - 1.0) * variance * own / (items - count) / items,
                false => variance / count.powi(2),
            })
        };
        let variance: Option<f64> = parts.iter().map(variance).sum();
        Self {
            value: values.sum::<f64>() / total,
            stderr: variance.map(f64::sqrt),
        }
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

    /// The numbers are those of `aggregate_subtask_metrics`, `pooled_sample_stderr` and `unweighted_mean_stderr` in
    /// lm-evaluation-harness 0.4.13.
    #[test]
    fn estimates_of_parts_are_aggregated_as_in_the_harness() {
        let part = |(value, stderr, items)| {
            let stderr = Some(stderr);
            (Estimate { value, stderr }, items)
        };
        let mut parts = [(0.5, 0.1, 8), (0.25, 0.2, 12), (0.75, 0.05, 4)].map(part);
        for (by_size, value, stderr) in [
            (true, 0.4166666666666667, 0.10792045865740842),
            (false, 0.5, 0.07637626158259735),
        ] {
            let found = Estimate::aggregate(&parts, by_size);
            assert!((found.value - value).abs() < 1e-12, "{found:?}");
            assert!((found.stderr.unwrap() - stderr).abs() < 1e-12, "{found:?}");
        }
        parts[1].0.stderr = None;
        assert_eq!(Estimate::aggregate(&parts, true).stderr, None);
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
