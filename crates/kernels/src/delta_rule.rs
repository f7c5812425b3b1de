//! The sizes, inputs and gradients of the gated delta rule.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

/// The number of tokens that [`crate::Recurrences::gated_delta_rule`] processes at once.
pub const DELTA_RULE_CHUNK: usize = crate::cpu::delta_rule::CHUNK;

pub use crate::cpu::delta_rule::DeltaRuleHeads;

/// The inputs of [`crate::Recurrences::gated_delta_rule`].
#[derive(Clone, Debug)]
pub struct DeltaRuleInputs<B: Backend> {
    /// The queries, keys and values of all heads side by side, `[batch, seq, 2 · key_heads · key_dim + heads · value_dim]`.
    pub qkv: FloatTensor<B>,
    /// The logarithm of the factor on the memory at each token, at most 0: `[batch, seq, heads]`.
    pub decay: FloatTensor<B>,
    /// The share of its value that a token writes, from 0 to 1: `[batch, seq, heads]`.
    pub rate: FloatTensor<B>,
    /// The memory before the tokens, `[batch, heads, key_dim, value_dim]`. Without it, it is zero.
    pub memory: Option<FloatTensor<B>>,
}

/// The outputs of [`crate::Recurrences::gated_delta_rule`].
#[derive(Clone, Debug)]
pub struct DeltaRuleOutputs<B: Backend> {
    /// `[batch, seq, heads · value_dim]`.
    pub output: FloatTensor<B>,
    /// The memory after the tokens, `[batch, heads, key_dim, value_dim]`. It has no gradient.
    pub memory: FloatTensor<B>,
}

/// The gradients of [`crate::Recurrences::gated_delta_rule`], each in the shape of its input.
#[derive(Clone, Debug)]
pub struct DeltaRuleGradients<B: Backend> {
    /// Of queries, keys and values.
    pub qkv: FloatTensor<B>,
    /// Of the decays.
    pub decay: FloatTensor<B>,
    /// Of the rates.
    pub rate: FloatTensor<B>,
    /// Of the memory before the tokens, if there is one.
    pub memory: Option<FloatTensor<B>>,
}
