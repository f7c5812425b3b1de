//! Means over seeds, with confidence intervals.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::statistics::Statistics;

/// Confidence level of the intervals.
const CONFIDENCE: f64 = 0.95;

/// A mean over seeds with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    pub count: usize,
    pub mean: f64,
    /// Half the width of the mean's 95% confidence interval: `t(0.975, n - 1) * s / sqrt(n)` with the sample
    /// standard deviation `s`, assuming normally distributed values. `None` for a single value.
    pub half_width: Option<f64>,
}

impl Estimate {
    /// Computes the estimate of some values. Returns `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let count = values.len();
        let freedom = (count - 1) as f64;
        let half_width = StudentsT::new(0.0, 1.0, freedom).ok().map(|student| {
            let quantile = student.inverse_cdf(1.0 - (1.0 - CONFIDENCE) / 2.0);
            quantile * values.std_dev() / (count as f64).sqrt()
        });
        Some(Self {
            count,
            mean: values.mean(),
            half_width: half_width.filter(|_| count > 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Means and half widths computed with SciPy 1.17.1: `np.mean(x)` and `t.ppf(0.975, n - 1) * sem(x)`.
    const SCIPY: [(&[f64], f64, f64); 4] = [
        (&[1.0, 2.0], 1.5, 6.353102368087347),
        (&[0.3084, 0.3121, 0.2999], 0.3068, 0.015539269252088027),
        (&[0.25, 0.5, 0.75, 1.25], 0.6875, 0.6793827209490038),
        (&[-1.5, 2.5, 0.125, 7.0, 3.0], 2.225, 4.0120592466254665),
    ];

    #[test]
    fn intervals_match_scipy() {
        for (values, mean, half_width) in SCIPY {
            let estimate = Estimate::of(values).expect("values");
            let found = estimate.half_width.expect("several values");
            assert!(
                (estimate.mean - mean).abs() <= 1e-12 * mean.abs(),
                "{values:?}"
            );
            assert!(
                (found - half_width).abs() <= 1e-9 * half_width,
                "{values:?}: {found}"
            );
        }
    }

    #[test]
    fn one_value_has_no_interval() {
        let one = Estimate::of(&[0.5]).expect("a value");
        assert_eq!((one.count, one.mean, one.half_width), (1, 0.5, None));
        assert_eq!(Estimate::of(&[]), None);
        let equal = Estimate::of(&[2.0, 2.0]).expect("values");
        assert_eq!(equal.half_width, Some(0.0));
    }
}
