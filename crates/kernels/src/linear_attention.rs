//! The recurrent state of linear attention.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// The number of tokens that [`crate::ops::linear_attention`] processes at once. All pairs within a chunk are
/// multiplied; earlier chunks contribute through the running sums.
pub const LINEAR_ATTENTION_CHUNK: usize = 64;

/// The running sums over all tokens so far. Their size does not depend on the number of tokens.
#[derive(Clone, Debug)]
pub struct LinearAttentionState<B: Backend> {
    /// `Σ φ(k) (v, 1)ᵀ / exp(peak)`, `[batch, kv_heads, features, head_dim + 1]`. The last column is `Σ φ(k)`.
    pub sums: Tensor<B, 4>,
    /// The largest exponent of any key's features so far, `[batch, kv_heads, 1, 1]`.
    pub peak: Tensor<B, 4>,
}
