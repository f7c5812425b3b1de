//! What the tests of choosing share.

use statrs::distribution::{ChiSquared, ContinuousCDF};

/// How many draws a frequency is measured by.
pub const DRAWS: usize = 20_000;

/// Softmax of some logits at a temperature, 0 where one is minus infinity.
pub fn softmax(logits: &[f64], temperature: f64) -> Vec<f64> {
    let weights: Vec<f64> = logits.iter().map(|x| (x / temperature).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

/// Pearson's χ² of counts, which draws from `probabilities` exceed once in ten million times; nothing impossible is drawn.
pub fn assert_drawn_from(counts: &[usize], probabilities: &[f64]) {
    let draws: usize = counts.iter().sum();
    let (mut squared, mut possible) = (0.0, 0);
    for (id, (&count, probability)) in counts.iter().zip(probabilities).enumerate() {
        let expected = probability * draws as f64;
        if expected == 0.0 {
            assert_eq!(count, 0, "token {id} was left out: {counts:?}");
        } else {
            squared += (count as f64 - expected).powi(2) / expected;
            possible += 1;
        }
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
