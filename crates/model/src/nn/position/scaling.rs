//! Scaled frequencies of rotary positions.

use std::f64::consts::PI;

use crate::config::RotaryScaling;

/// The frequencies of the pairs of `dims` rotated elements.
pub(super) fn frequencies(
    base: f64,
    dims: usize,
    seq_len: usize,
    scaling: &RotaryScaling,
) -> Vec<f64> {
    let base = match *scaling {
        RotaryScaling::Dynamic {
            factor,
            original_seq_len,
        } => {
            let length = seq_len.max(original_seq_len) as f64 / original_seq_len as f64;
            let dims = dims as f64;
            base * (factor * length - (factor - 1.0)).powf(dims / (dims - 2.0))
        }
        _ => base,
    };
    let pair = |i: usize| {
        let frequency = base.powf(-((2 * i) as f64) / dims as f64);
        match scaling {
            RotaryScaling::Yarn { factor, .. } => {
                let [first, last] = ramp(base, dims, scaling);
                let divided = ((i as f64 - first) / (last - first)).clamp(0.0, 1.0);
                frequency * (1.0 - divided) + frequency / factor * divided
            }
            RotaryScaling::LongRope {
                short_factor,
                long_factor,
                original_seq_len,
                ..
            } => {
                let divisors = match seq_len > *original_seq_len {
                    true => long_factor,
                    false => short_factor,
                };
                // A checked configuration has a divisor for each pair.
                frequency / divisors.get(i).copied().unwrap_or(1.0)
            }
            _ => scale_frequency(frequency, scaling),
        }
    };
    (0..dims.div_ceil(2)).map(pair).collect()
}

/// Factor on cosines and sines.
pub(super) fn factor(seq_len: usize, scaling: &RotaryScaling) -> f64 {
    match *scaling {
        RotaryScaling::Yarn {
            factor,
            attention_factor,
            ..
        } => attention_factor.unwrap_or_else(|| yarn_factor(1.0, factor)),
        RotaryScaling::LongRope {
            attention_factor,
            original_seq_len,
            ..
        } => attention_factor.unwrap_or_else(|| {
            long_rope_factor(seq_len as f64 / original_seq_len as f64, original_seq_len)
        }),
        RotaryScaling::None
        | RotaryScaling::Linear { .. }
        | RotaryScaling::Llama3 { .. }
        | RotaryScaling::Dynamic { .. } => 1.0,
    }
}

/// LongRoPE's factor on cosines and sines for a context that is `growth` times as long as the original one.
pub(crate) fn long_rope_factor(growth: f64, original_seq_len: usize) -> f64 {
    match growth > 1.0 {
        true => (1.0 + growth.ln() / (original_seq_len as f64).ln()).sqrt(),
        false => 1.0,
    }
}

/// YaRN's `0.1 m ln(growth) + 1`, a factor on queries and keys for contexts that are `growth` times as long. Published models have
/// other `m` than 1 (`mscale`).
pub(crate) fn yarn_factor(m: f64, growth: f64) -> f64 {
    0.1 * m * growth.max(1.0).ln() + 1.0
}

/// The fractional pair indices between which YaRN interpolates from unchanged to divided frequencies.
fn ramp(base: f64, dims: usize, scaling: &RotaryScaling) -> [f64; 2] {
    let RotaryScaling::Yarn {
        beta_fast,
        beta_slow,
        truncate,
        original_seq_len,
        ..
    } = *scaling
    else {
        return [0.0, 1.0];
    };
    // The pair with `rotations` full rotations within the original context.
    let pair = |rotations: f64| {
        let length = original_seq_len as f64 / (rotations * 2.0 * PI);
        dims as f64 * length.ln() / (2.0 * base.ln())
    };
    let (first, last) = match truncate {
        true => (pair(beta_fast).floor(), pair(beta_slow).ceil()),
        false => (pair(beta_fast), pair(beta_slow)),
    };
    let (first, last) = (first.max(0.0), last.min(dims as f64 - 1.0));
    match first == last {
        // A ramp of zero width would divide by zero.
        true => [first, last + 0.001],
        false => [first, last],
    }
}

/// Applies a scaling that depends only on the frequency.
fn scale_frequency(frequency: f64, scaling: &RotaryScaling) -> f64 {
    match *scaling {
        RotaryScaling::None
        | RotaryScaling::Dynamic { .. }
        | RotaryScaling::Yarn { .. }
        | RotaryScaling::LongRope { .. } => frequency,
        RotaryScaling::Linear { factor } => frequency / factor,
        RotaryScaling::Llama3 {
            factor,
            low_frequency_factor: low,
            high_frequency_factor: high,
            original_seq_len,
        } => {
            // Full rotations of the pair within the original context.
            let rotations = original_seq_len as f64 * frequency / (2.0 * PI);
            let kept = ((rotations - low) / (high - low)).clamp(0.0, 1.0);
            frequency * kept + frequency / factor * (1.0 - kept)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_scaled(scaling: &RotaryScaling, frequency: f64, expected: f64) {
        let found = scale_frequency(frequency, scaling);
        assert!(
            (found / expected - 1.0).abs() < 1e-12,
            "{frequency}: {found}, not {expected}"
        );
    }

    #[test]
    fn linear_scaling_divides_every_frequency() {
        let scaling = RotaryScaling::Linear { factor: 4.0 };
        assert_scaled(&scaling, 1.0, 0.25);
        assert_scaled(&scaling, 0.01, 0.0025);
    }

    // LLaMA 3.1's parameters. A pair with t rotations in 8192 tokens has the frequency 2πt/8192. Between 1 and 4
    // rotations, the fraction (t - 1)/3 of the frequency is kept and the rest is divided by 8.
    #[test]
    fn llama3_scaling_matches_hand_calculation() {
        let scaling = RotaryScaling::Llama3 {
            factor: 8.0,
            low_frequency_factor: 1.0,
            high_frequency_factor: 4.0,
            original_seq_len: 8192,
        };
        let frequency = |rotations: f64| 2.0 * PI * rotations / 8192.0;
        assert_scaled(&scaling, 1.0, 1.0);
        assert_scaled(&scaling, frequency(4.0), frequency(4.0));
        assert_scaled(&scaling, frequency(2.5), frequency(2.5) * (0.5 + 0.5 / 8.0));
        assert_scaled(
            &scaling,
            frequency(2.0),
            frequency(2.0) * (1.0 / 3.0 + 2.0 / 3.0 / 8.0),
        );
        assert_scaled(&scaling, frequency(1.0), frequency(1.0) / 8.0);
        assert_scaled(&scaling, frequency(0.3), frequency(0.3) / 8.0);
    }

    // Eight pairs of base 256 in a context of 32: pair i has 32 / (2π · 2^i) rotations. The ramp from 1 rotation to 1/8
    // begins at pair log₂(32/2π) = 2.35, rounded down to 2, and ends at log₂(256/2π) = 5.35, rounded up to 6.
    #[test]
    fn yarn_scaling_matches_hand_calculation() {
        let yarn = |truncate| RotaryScaling::Yarn {
            factor: 4.0,
            beta_fast: 1.0,
            beta_slow: 0.125,
            attention_factor: None,
            truncate,
            original_seq_len: 32,
        };
        let found = frequencies(256.0, 16, 64, &yarn(true));
        let divided = [0.0, 0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0];
        for (i, (frequency, share)) in found.iter().zip(divided).enumerate() {
            let expected = (-(i as f64)).exp2() * (1.0 - share + share / 4.0);
            assert!((frequency / expected - 1.0).abs() < 1e-12, "pair {i}");
        }
        let exact = frequencies(256.0, 16, 64, &yarn(false));
        let share = (3.0 - (32.0 / (2.0 * PI)).log2()) / 3.0;
        let expected = 0.125 * (1.0 - share + share / 4.0);
        assert!((exact[3] / expected - 1.0).abs() < 1e-12);
        assert!((factor(64, &yarn(true)) - (1.0 + 0.1 * 4f64.ln())).abs() < 1e-12);
    }

    // At twice the original context and a factor of 3 the base is 100 · (3 · 2 - 2)^(4/2).
    #[test]
    fn dynamic_scaling_raises_the_base_of_longer_contexts() {
        let dynamic = RotaryScaling::Dynamic {
            factor: 3.0,
            original_seq_len: 16,
        };
        assert_eq!(frequencies(100.0, 4, 16, &dynamic), [1.0, 0.1]);
        assert_eq!(frequencies(100.0, 4, 8, &dynamic), [1.0, 0.1]);
        assert!((frequencies(100.0, 4, 32, &dynamic)[1] - 0.025).abs() < 1e-12);
    }

    // Four times the original context of 16: √(1 + ln 4 / ln 16) = √1.5.
    #[test]
    fn longrope_divides_by_the_factors_of_the_context() {
        let scaled = |attention_factor| RotaryScaling::LongRope {
            short_factor: vec![1.0, 2.0],
            long_factor: vec![4.0, 5.0],
            attention_factor,
            original_seq_len: 16,
        };
        assert_eq!(frequencies(100.0, 4, 16, &scaled(None)), [1.0, 0.05]);
        assert_eq!(frequencies(100.0, 4, 17, &scaled(None)), [0.25, 0.02]);
        assert!((factor(64, &scaled(None)) - 1.5f64.sqrt()).abs() < 1e-12);
        assert_eq!(factor(16, &scaled(None)), 1.0);
        assert_eq!(factor(16, &scaled(Some(1.25))), 1.25);
    }
}
