//! The state that linear attention carries from token to token.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// Tokens that [`crate::ops::linear_attention`] takes at once: within them every pair is multiplied, across them the
/// running sums are.
pub const LINEAR_ATTENTION_CHUNK: usize = 64;

/// The sums over the tokens seen so far, all that linear attention knows of them: their size does not grow.
#[derive(Clone, Debug)]
pub struct LinearAttentionState<B: Backend> {
    /// `Σ φ(k) (v, 1)ᵀ / exp(peak)`, `[batch, kv_heads, features, head_dim + 1]`: the last column is `Σ φ(k)`.
    pub sums: Tensor<B, 4>,
    /// The largest exponent of a key's features so far, `[batch, kv_heads, 1, 1]`.
    pub peak: Tensor<B, 4>,
}
