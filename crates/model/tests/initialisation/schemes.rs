//! The published distributions of initial weights.

use super::{D, LAYERS};

/// Kind of a parameter, derived from its path.
pub enum ParameterKind {
    Embedding {
        rows: f64,
    },
    Linear {
        fan_in: f64,
        out: f64,
        residual: bool,
    },
    Bias {
        fan_in: f64,
    },
    Gain,
    NormBias,
    Decay,
}

/// Distribution of a parameter, with its standard deviation or bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InitialDistribution {
    Constant(f32),
    Normal(f64),
    /// Truncated at three standard deviations.
    Truncated(f64),
    Uniform(f64),
    /// The logarithm of a uniform number from 0.01.
    Logarithm(f64),
}

/// A column of the table in `init.rs`.
pub type Scheme = fn(ParameterKind) -> InitialDistribution;

/// Radford et al. 2019: 0.02, divided by √N in the N = 2 · layers linear layers that write to the residual stream.
pub fn gpt2(kind: ParameterKind) -> InitialDistribution {
    match kind {
        ParameterKind::Linear { residual: true, .. } => {
            InitialDistribution::Normal(0.02 / 6f64.sqrt())
        }
        other => normal(other),
    }
}

pub fn normal(kind: ParameterKind) -> InitialDistribution {
    match kind {
        ParameterKind::Embedding { .. } | ParameterKind::Linear { .. } => {
            InitialDistribution::Normal(0.02)
        }
        ParameterKind::Bias { .. } | ParameterKind::NormBias => InitialDistribution::Constant(0.0),
        ParameterKind::Gain => InitialDistribution::Constant(1.0),
        ParameterKind::Decay => InitialDistribution::Logarithm(16.0),
    }
}

/// Lozhkov et al. 2024: the `initializer_range` of the published models.
pub fn starcoder2(kind: ParameterKind) -> InitialDistribution {
    match normal(kind) {
        InitialDistribution::Normal(_) => InitialDistribution::Normal(0.018042),
        other => other,
    }
}

/// Defaults of PyTorch's `Embedding` and `Linear`.
pub fn fan_in(kind: ParameterKind) -> InitialDistribution {
    match kind {
        ParameterKind::Embedding { .. } => InitialDistribution::Normal(1.0),
        ParameterKind::Linear { fan_in, .. } | ParameterKind::Bias { fan_in } => {
            InitialDistribution::Uniform(1.0 / fan_in.sqrt())
        }
        other => normal(other),
    }
}

/// Chowdhery et al. 2022, section 5.
pub fn le_cun(kind: ParameterKind) -> InitialDistribution {
    match kind {
        ParameterKind::Embedding { .. } => InitialDistribution::Normal(1.0),
        ParameterKind::Linear { fan_in, .. } => InitialDistribution::Normal((1.0 / fan_in).sqrt()),
        other => normal(other),
    }
}

/// Glorot and Bengio 2010, truncated.
pub fn truncated_xavier(kind: ParameterKind) -> InitialDistribution {
    match kind {
        ParameterKind::Embedding { rows } => {
            InitialDistribution::Truncated((2.0 / (rows + D)).sqrt())
        }
        ParameterKind::Linear { fan_in, out, .. } => {
            InitialDistribution::Truncated((2.0 / (fan_in + out)).sqrt())
        }
        other => normal(other),
    }
}

/// Nguyen and Salazar 2019; for layers that write to the residual stream, Wang and Komatsuzaki 2021.
pub fn small(kind: ParameterKind) -> InitialDistribution {
    match kind {
        ParameterKind::Linear { residual: true, .. } => {
            InitialDistribution::Normal(2.0 / (LAYERS * D.sqrt()))
        }
        ParameterKind::Embedding { .. } | ParameterKind::Linear { .. } => {
            InitialDistribution::Normal((2.0 / (5.0 * D)).sqrt())
        }
        other => normal(other),
    }
}
