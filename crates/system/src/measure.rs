//! Measurements: figures with units and repetitions, interleaved comparisons, and their record.
//!
//! `cargo xtask bench` measures programs with it, and `emberlm-bench` operations.

mod comparison;
mod record;
mod stopwatch;
mod unit;

pub use comparison::{Comparison, Contender, Figure, Measured, Metric, Ratio, Sample};
pub use record::{Machine, Record};
pub use stopwatch::Stopwatch;
pub use unit::Unit;

/// The median value, or the lower of the two middle ones: a value that was measured. NaN if there are no values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len().saturating_sub(1) / 2;
    values.get(middle).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_one_of_the_values() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 1.0);
        assert!(median(Vec::new()).is_nan());
    }
}
