//! Helpers of the sampling tests.

use statrs::distribution::{ChiSquared, ContinuousCDF};

/// The number of samples per frequency test.
pub const DRAWS: usize = 20_000;

/// Softmax of some logits at a temperature; 0 for minus infinity.
pub fn softmax(logits: &[f64], temperature: f64) -> Vec<f64> {
    let weights: Vec<f64> = logits.iter().map(|x| (x / temperature).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

/// The minimum expected count of a cell for which Pearson's χ² is accurate. Rarer cells are pooled.
const LEAST_EXPECTED: f64 = 5.0;

/// Pearson's χ² test with a false-positive rate of one in ten million. Also asserts that no token of
/// probability 0 is drawn.
pub fn assert_drawn_from(counts: &[usize], probabilities: &[f64]) {
    let draws: usize = counts.iter().sum();
    let (mut squared, mut possible) = (0.0, 0);
    let mut add = |count: usize, expected: f64| {
        squared += (count as f64 - expected).powi(2) / expected;
        possible += 1;
    };
    let (mut rare_count, mut rare_expected) = (0, 0.0);
    for (id, (&count, probability)) in counts.iter().zip(probabilities).enumerate() {
        let expected = probability * draws as f64;
        if expected == 0.0 {
            assert_eq!(count, 0, "token {id} was left out: {counts:?}");
        } else if expected < LEAST_EXPECTED {
            rare_count += count;
            rare_expected += expected;
        } else {
            add(count, expected);
        }
    }
    if rare_expected >= LEAST_EXPECTED {
        add(rare_count, rare_expected);
    }
    if possible > 1 {
        let by_chance = ChiSquared::new(f64::from(possible - 1))
            .unwrap()
            .sf(squared);
        assert!(
            by_chance > 1e-7,
            "χ² = {squared:.1}: {counts:?}, expected {probabilities:?} of {draws}"
        );
    }
}
