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
    /// `y · σ(1.702 y)` with `y = min(x, 7)`. A gated layer multiplies it by `min(max(u, -7), 7) + 1` of its other projection `u`
    /// (OpenAI 2025, "gpt-oss").
    ClampedSilu,
}

impl Activation {
    /// Every activation.
    pub const ALL: [Self; 6] = [
        Self::Relu,
        Self::ReluSquared,
        Self::Gelu,
        Self::GeluTanh,
        Self::Silu,
        Self::ClampedSilu,
    ];

    /// The bound of [`Activation::ClampedSilu`].
    pub(crate) const CLAMP: f32 = 7.0;
    /// The factor in the sigmoid of [`Activation::ClampedSilu`].
    pub(crate) const STEEPNESS: f32 = 1.702;
}
