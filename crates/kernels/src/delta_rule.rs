//! The inputs of the gated delta rule.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// The number of tokens that [`crate::ops::gated_delta_rule`] processes at once.
pub const DELTA_RULE_CHUNK: usize = 64;

/// The inputs of [`crate::ops::gated_delta_rule`]. Each head of queries and keys serves `heads / key_heads` consecutive heads
/// of values.
#[derive(Clone, Debug)]
pub struct DeltaRuleInputs<B: Backend> {
    /// Queries, `[batch, key_heads, seq, key_dim]`.
    pub q: Tensor<B, 4>,
    /// Keys, in the shape of the queries.
    pub k: Tensor<B, 4>,
    /// Values, `[batch, heads, seq, value_dim]`.
    pub v: Tensor<B, 4>,
    /// The logarithm of the factor on the memory at each token, at most 0: `[batch, heads, seq]`.
    pub decay: Tensor<B, 3>,
    /// The share of its value that a token writes, from 0 to 1: `[batch, heads, seq]`.
    pub rate: Tensor<B, 3>,
}
