//! Summary statistics of an attention head.

use serde::Serialize;

/// Statistics of one head, averaged over all query positions except the first, which attends only to itself.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct HeadHabits {
    /// Entropy of the attention distribution, in nats: 0 for one attended token, `ln n` for uniform attention
    /// over n.
    pub entropy: f64,
    /// Mean distance to the attended tokens, in tokens.
    pub distance: f64,
    /// Weight on the previous token: near 1 in a previous-token head.
    pub previous: f64,
    /// Weight on the first token, the usual attention sink of inactive heads.
    pub first: f64,
}

impl HeadHabits {
    /// Computes the statistics of `weights` `[count, count]`, one row per query. `count` must be at least 2.
    pub fn of(weights: &[f32], count: usize) -> Self {
        let rows = weights.chunks(count).enumerate().skip(1);
        let mean = |of: &dyn Fn(usize, &[f32]) -> f64| {
            let total: f64 = rows.clone().map(|(i, row)| of(i, &row[..=i])).sum();
            total / (count - 1) as f64
        };
        Self {
            entropy: mean(&|_, row| row.iter().map(|&weight| surprise(weight.into())).sum()),
            distance: mean(&|i, row| {
                let distances = row.iter().enumerate();
                let terms = distances.map(|(j, &weight)| (i - j) as f64 * f64::from(weight));
                terms.sum()
            }),
            previous: mean(&|i, row| row[i - 1].into()),
            first: mean(&|_, row| row[0].into()),
        }
    }
}

/// Returns `-p ln p`, or 0 if `p` is 0.
fn surprise(p: f64) -> f64 {
    if p > 0.0 { -p * p.ln() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_habits(weights: &[f32], expected: [f64; 4]) {
        let found = HeadHabits::of(weights, 3);
        let found = [found.entropy, found.distance, found.previous, found.first];
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-7, "{found}, not {expected}");
        }
    }

    #[test]
    fn statistics_match_a_hand_computed_example() {
        #[rustfmt::skip]
        let previous = [
            1.0, 0.0, 0.0,
            1.0, 0.0, 0.0,
            0.0, 1.0, 0.0,
        ];
        assert_habits(&previous, [0.0, 1.0, 1.0, 0.5]);
        #[rustfmt::skip]
        let even = [
            1.0, 0.0, 0.0,
            0.5, 0.5, 0.0,
            0.5, 0.25, 0.25,
        ];
        let ln2 = std::f64::consts::LN_2;
        assert_habits(
            &even,
            [(ln2 + 1.5 * ln2) / 2.0, (0.5 + 1.25) / 2.0, 0.375, 0.5],
        );
    }
}
