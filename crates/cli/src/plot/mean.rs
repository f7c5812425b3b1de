//! Means of curves over runs, with standard deviations.

use statrs::statistics::Statistics;

/// The mean of several values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    pub mean: f64,
    /// The sample standard deviation (with the divisor n - 1), or 0 for a single value.
    pub deviation: f64,
}

impl Mean {
    /// The mean of `values`. Returns `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let deviation = match values {
            [] => return None,
            [value] => value * 0.0,
            values => values.std_dev(),
        };
        Some(Self {
            mean: values.mean(),
            deviation,
        })
    }
}

/// Averages curves over their common range, at every position where one of them has a point. Between its points, a
/// curve is interpolated linearly. Curves without points are left out.
pub fn mean_curve(curves: &[Vec<(f64, f64)>]) -> Vec<(f64, Mean)> {
    let curves: Vec<_> = curves.iter().map(|curve| ordered(curve)).collect();
    let curves: Vec<_> = curves.iter().filter(|curve| !curve.is_empty()).collect();
    let ends = curves
        .iter()
        .filter_map(|c| Some((c.first()?.0, c.last()?.0)));
    let common = ends.reduce(|(a, b), (from, to)| (f64::max(a, from), f64::min(b, to)));
    let Some((from, to)) = common else {
        return Vec::new();
    };
    let mut xs: Vec<f64> = curves.iter().flat_map(|c| c.iter().map(|p| p.0)).collect();
    xs.retain(|x| (from..=to).contains(x));
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let at = |x: f64| {
        let values: Vec<f64> = curves.iter().filter_map(|curve| value(curve, x)).collect();
        Some((x, Mean::of(&values)?))
    };
    xs.into_iter().filter_map(at).collect()
}

/// Sorts points by position. Of several points at one position, the last is kept, as a resumed run may repeat steps.
fn ordered(curve: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut points: Vec<_> = curve.iter().copied().rev().collect();
    points.retain(|(x, _)| x.is_finite());
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points.dedup_by(|later, kept| later.0 == kept.0);
    points
}

/// The value of an ordered curve at `x`, which lies within its range.
fn value(curve: &[(f64, f64)], x: f64) -> Option<f64> {
    let after = curve.partition_point(|point| point.0 < x);
    let &(there, y) = curve.get(after)?;
    if there == x {
        return Some(y);
    }
    let &(before, start) = curve.get(after.checked_sub(1)?)?;
    Some(start + (x - before) / (there - before) * (y - start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(mean: f64, deviation: f64) -> Mean {
        Mean { mean, deviation }
    }

    #[test]
    fn deviations_have_the_divisor_n_minus_1() {
        // The squared differences from 4 are 4, 0 and 4: the deviation is sqrt(8 / 2).
        assert_eq!(Mean::of(&[2.0, 4.0, 6.0]), Some(mean(4.0, 2.0)));
        assert_eq!(Mean::of(&[3.0]), Some(mean(3.0, 0.0)));
        assert_eq!(Mean::of(&[]), None);
    }

    #[test]
    fn curves_are_interpolated_within_their_common_range() {
        let every_10 = vec![(10.0, 1.0), (20.0, 2.0), (30.0, 3.0)];
        let every_15 = vec![(15.0, 3.5), (30.0, 5.0), (45.0, 6.0)];
        // At 15 the values are 1.5 and 3.5, at 20 they are 2 and 4, at 30 they are 3 and 5.
        let deviation = 2f64.sqrt();
        let found = mean_curve(&[every_10.clone(), every_15, Vec::new()]);
        let expected = [(15.0, 2.5), (20.0, 3.0), (30.0, 4.0)];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for ((x, found), (at, value)) in found.into_iter().zip(expected) {
            assert_eq!(x, at);
            assert!((found.mean - value).abs() < 1e-12, "{x}: {found:?}");
            assert!(
                (found.deviation - deviation).abs() < 1e-12,
                "{x}: {found:?}"
            );
        }
        assert_eq!(mean_curve(&[every_10, vec![(40.0, 1.0)]]), []);
        assert_eq!(mean_curve(&[]), []);
    }

    #[test]
    fn a_repeated_step_counts_once_and_nan_has_no_mean() {
        let resumed = vec![(1.0, 9.0), (2.0, 8.0), (1.0, 4.0), (2.0, 2.0)];
        let other = vec![(1.0, 2.0), (2.0, f64::NAN)];
        let found = mean_curve(&[resumed, other]);
        assert_eq!(found[0], (1.0, mean(3.0, 2f64.sqrt())));
        assert!(found[1].1.mean.is_nan() && found[1].1.deviation.is_nan());
    }
}
