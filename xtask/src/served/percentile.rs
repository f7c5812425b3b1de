//! Percentiles of measured times.

/// The nearest-rank percentile: the smallest figure that is not below a share `part` of all.
pub fn percentile(figures: &[f64], part: f64) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let rank = (part * sorted.len() as f64).ceil() as usize;
    let place = rank.saturating_sub(1);
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let figures: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        let found = [0.5, 0.9, 0.99, 1.0].map(|part| percentile(&figures, part));
        assert_eq!(found, [100.0, 180.0, 198.0, 200.0]);
        assert_eq!(percentile(&[7.0], 0.5), 7.0);
        assert!(percentile(&[], 0.5).is_nan());
    }
}
