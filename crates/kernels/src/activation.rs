//! The feed-forward activations.

use serde::{Deserialize, Serialize};

/// An elementwise activation `y = f(x)` of the feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)²` (So et al. 2021, "Primer").
    ReluSquared,
    /// `x · Φ(x)` with Φ the cumulative distribution function of the normal distribution, computed with the error
    /// function (Hendrycks and Gimpel 2016). PyTorch's `nn.GELU()`.
    Gelu,
    /// `x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`, the approximation used by GPT-2.
    GeluTanh,
    /// `x · σ(x)`, also called swish.
    Silu,
}

impl Activation {
    /// Every activation.
    pub const ALL: [Self; 5] = [
        Self::Relu,
        Self::ReluSquared,
        Self::Gelu,
        Self::GeluTanh,
        Self::Silu,
    ];
}
