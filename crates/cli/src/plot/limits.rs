//! Limits of vertical axes that outliers do not distort.

use super::axis::ends;

/// Distance of the limits from the percentiles, in units of the distance between two percentiles.
const REACH: f64 = 5.0;

/// The range of a line's values without outliers: at most [`REACH`] times the distance of the 10th and the 60th percentile
/// above the 60th, and as much of the distance of the 40th and the 90th below the 40th. High values may be two fifths
/// of a line, as after a divergence, without an effect on the range. Returns `None` if no value is finite.
pub fn robust_range(line: &[f64]) -> Option<(f64, f64)> {
    let mut sorted: Vec<f64> = line.iter().copied().filter(|y| y.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = ends(&sorted)?;
    let percentile = |share: f64| {
        let place = share * (sorted.len() - 1) as f64;
        let (below, above) = (
            sorted[place.floor() as usize],
            sorted[place.ceil() as usize],
        );
        below + place.fract() * (above - below)
    };
    let [tenth, fortieth, sixtieth, ninetieth] = [0.1, 0.4, 0.6, 0.9].map(percentile);
    let above = sixtieth + REACH * (sixtieth - tenth);
    let below = fortieth - REACH * (ninetieth - fortieth);
    // A constant line with exceptions has no spread to measure them by.
    Some((
        if fortieth < ninetieth {
            low.max(below)
        } else {
            low
        },
        if tenth < sixtieth {
            high.min(above)
        } else {
            high
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_outliers_is_shown_in_full() {
        let linear: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!(robust_range(&linear), Some((0.0, 100.0)));
        let decay: Vec<f64> = (1..=40).map(|step| 4.0 * 0.9f64.powi(step)).collect();
        assert_eq!(robust_range(&decay), Some((decay[39], decay[0])));
        assert_eq!(robust_range(&[2.0]), Some((2.0, 2.0)));
        assert_eq!(robust_range(&[1.0, 1.0, 1.0, 7.0]), Some((1.0, 7.0)));
        assert_eq!(robust_range(&[f64::NAN, f64::INFINITY]), None);
    }

    #[test]
    fn first_values_and_divergences_are_cut_off() {
        // 0 to 10 and an outlier: the 10th percentile is 1.1, the 60th 6.6, so the range ends at 6.6 + 5 * 5.5.
        let mut line: Vec<f64> = (0..=10).map(f64::from).collect();
        line.push(1000.0);
        let (low, high) = robust_range(&line).expect("values");
        assert_eq!(low, 0.0);
        assert!((high - 34.1).abs() < 1e-9, "{high}");
        // The last 35 of 100 values have diverged.
        let mut diverged: Vec<f64> = (0..65).map(|i| 3.0 - f64::from(i) / 65.0).collect();
        diverged.extend([1e6; 35]);
        let (low, high) = robust_range(&diverged).expect("values");
        assert!(low < 2.1 && (3.0..10.0).contains(&high), "{low} {high}");
        // An accuracy that collapses at its end.
        let mut collapsed: Vec<f64> = (0..80).map(|i| 0.8 + f64::from(i) / 800.0).collect();
        collapsed.extend([-1e6; 10]);
        let (low, _) = robust_range(&collapsed).expect("values");
        assert!((0.0..0.8).contains(&low), "{low}");
    }
}
