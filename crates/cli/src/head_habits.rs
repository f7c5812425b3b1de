//! Summary statistics of an attention head.

use serde::Serialize;

/// Statistics of one head, averaged over query positions.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct HeadHabits {
    /// Entropy of the attention distribution, in nats: 0 for one attended token, `ln n` for uniform attention
    /// over n.
    pub entropy: f64,
    /// Mean distance to the attended tokens, in tokens. `None` for cross-attention, whose queries and keys are different
    /// tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distance: Option<f64>,
    /// Weight on the previous token: near 1 in a previous-token head. `None` for cross-attention.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<f64>,
    /// Weight on the first token, the usual attention sink of inactive heads.
    pub first: f64,
}

/// The queries and keys of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionPattern {
    /// A token attends to itself and to earlier ones.
    Causal,
    /// A token attends to all tokens.
    Full,
    /// A token of the target attends to all tokens of the source.
    Cross,
}

impl HeadHabits {
    /// Computes the statistics of `weights` `[queries, keys]`, where there are `keys` keys. In causal attention the first
    /// query is left out, because it attends only to itself, so there must be at least 2; otherwise at least 1.
    pub fn of(weights: &[f32], keys: usize, pattern: AttentionPattern) -> Self {
        let skipped = match pattern {
            AttentionPattern::Causal => 1,
            AttentionPattern::Full | AttentionPattern::Cross => 0,
        };
        let rows = weights.chunks(keys).enumerate();
        let mean = |skipped: usize, of: &dyn Fn(usize, &[f32]) -> f64| {
            let values: Vec<f64> = rows
                .clone()
                .skip(skipped)
                .map(|(i, row)| of(i, row))
                .collect();
            values.iter().sum::<f64>() / values.len().max(1) as f64
        };
        let is_self = pattern != AttentionPattern::Cross;
        Self {
            entropy: mean(skipped, &|_, row| {
                row.iter().map(|&weight| surprise(weight.into())).sum()
            }),
            distance: is_self.then(|| {
                mean(skipped, &|i, row| {
                    let distances = row.iter().enumerate();
                    let terms =
                        distances.map(|(j, &weight)| i.abs_diff(j) as f64 * f64::from(weight));
                    terms.sum()
                })
            }),
            // The first query has no previous token.
            previous: is_self.then(|| mean(1, &|i, row| row[i - 1].into())),
            first: mean(skipped, &|_, row| row[0].into()),
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

    fn assert_habits(weights: &[f32], pattern: AttentionPattern, expected: [Option<f64>; 4]) {
        let found = HeadHabits::of(weights, 3, pattern);
        let found = [
            Some(found.entropy),
            found.distance,
            found.previous,
            Some(found.first),
        ];
        for (found, expected) in found.into_iter().zip(expected) {
            match (found, expected) {
                (Some(found), Some(expected)) => {
                    assert!((found - expected).abs() < 1e-7, "{found}, not {expected}");
                }
                _ => assert_eq!(found, expected),
            }
        }
    }

    #[test]
    fn statistics_match_a_hand_computed_example() {
        let ln2 = std::f64::consts::LN_2;
        #[rustfmt::skip]
        let previous = [
            1.0, 0.0, 0.0,
            1.0, 0.0, 0.0,
            0.0, 1.0, 0.0,
        ];
        let expected = [0.0, 1.0, 1.0, 0.5].map(Some);
        assert_habits(&previous, AttentionPattern::Causal, expected);
        #[rustfmt::skip]
        let even = [
            1.0, 0.0, 0.0,
            0.5, 0.5, 0.0,
            0.5, 0.25, 0.25,
        ];
        let expected = [(ln2 + 1.5 * ln2) / 2.0, (0.5 + 1.25) / 2.0, 0.375, 0.5].map(Some);
        assert_habits(&even, AttentionPattern::Causal, expected);
        #[rustfmt::skip]
        let full = [
            0.5, 0.0, 0.5,
            0.0, 0.5, 0.5,
        ];
        let expected = [ln2, (1.0 + 0.5) / 2.0, 0.0, 0.25].map(Some);
        assert_habits(&full, AttentionPattern::Full, expected);
        let expected = [Some(ln2), None, None, Some(0.25)];
        assert_habits(&full, AttentionPattern::Cross, expected);
    }
}
