//! Distributions of initial weights.

use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal, Uniform};

/// A distribution with mean 0.
#[derive(Clone, Copy, Debug)]
pub(super) enum WeightDistribution {
    /// Only zeros.
    Zeros,
    /// Normal distribution with this standard deviation.
    Normal(f64),
    /// Normal distribution with this standard deviation; values beyond three standard deviations are redrawn.
    Truncated(f64),
    /// Uniform distribution in `±bound`.
    Uniform(f64),
}

impl WeightDistribution {
    /// The distribution of its values times `factor`.
    pub(super) fn times(self, factor: f64) -> Self {
        match self {
            Self::Zeros => Self::Zeros,
            Self::Normal(std) => Self::Normal(std * factor),
            Self::Truncated(std) => Self::Truncated(std * factor),
            Self::Uniform(bound) => Self::Uniform(bound * factor),
        }
    }

    pub(super) fn sample(self, rng: ChaCha8Rng, count: usize) -> Vec<f32> {
        let normal = |std: f64, cut: f32| {
            let std = std as f32;
            Distribution::<f32>::sample_iter(StandardNormal, rng.clone())
                .filter(move |z: &f32| z.abs() <= cut)
                .take(count)
                .map(move |z| z * std)
                .collect()
        };
        match self {
            Self::Zeros => vec![0.0; count],
            Self::Normal(std) => normal(std, f32::INFINITY),
            Self::Truncated(std) => normal(std, 3.0),
            Self::Uniform(bound) => {
                let bound = bound as f32;
                match Uniform::new_inclusive(-bound, bound) {
                    Ok(uniform) => uniform.sample_iter(rng).take(count).collect(),
                    // Only an infinite bound fails, and a fan-in of at least 1 has a finite one.
                    Err(_) => vec![0.0; count],
                }
            }
        }
    }
}
