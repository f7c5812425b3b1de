//! Mean and standard deviation of a sample.

/// The mean of a sample and its standard deviation `√(Σ (x - mean)² / (n - 1))`, which is NaN for a single
/// value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) mean: f64,
    pub(crate) deviation: f64,
}

impl Spread {
    pub(crate) fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let count = values.clone().count() as f64;
        let mean = values.clone().sum::<f64>() / count;
        let squares: f64 = values.map(|x| (x - mean).powi(2)).sum();
        Self {
            mean,
            deviation: (squares / (count - 1.0)).sqrt(),
        }
    }
}
