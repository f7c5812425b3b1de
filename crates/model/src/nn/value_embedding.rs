//! Value embeddings of an attention.

use burn::module::{Module, Param};
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Int, Tensor, activation};

use emberlm_kernels::{Backend, Precision, ops};

use crate::nn::init::Initializer;
use crate::nn::token_table::TokenTable;

/// Configuration of a [`ValueEmbedding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueEmbeddingConfig {
    /// Number of token ids.
    pub vocab_size: usize,
    /// Number of elements that the gate reads.
    pub gate_inputs: usize,
}

impl ValueEmbeddingConfig {
    /// Number of parameters with `kv_heads` heads of width `head_dim`.
    pub(crate) fn parameters(&self, [kv_heads, head_dim]: [usize; 2]) -> u128 {
        let [vocab_size, inputs] = [self.vocab_size, self.gate_inputs].map(|size| size as u128);
        kv_heads as u128 * (vocab_size * head_dim as u128 + inputs)
    }

    pub(crate) fn init_from<B: Backend>(
        &self,
        from: &Initializer<'_, B>,
        path: &str,
        [kv_heads, head_dim]: [usize; 2],
    ) -> ValueEmbedding<B> {
        let table = [self.vocab_size, kv_heads * head_dim];
        ValueEmbedding {
            table: from.token_embedding(&format!("{path}.table"), table),
            gate: from.zero_matrix(&format!("{path}.gate"), [self.gate_inputs, kv_heads]),
        }
    }
}

/// Adds `2 σ(x W) e` to the values of a token: `e` is the token's row of a table, and `x W` has an element per key-value head
/// (Zhou et al. 2024, [2410.17897](https://arxiv.org/abs/2410.17897); the gate is nanochat's). The gates start at 1.
#[derive(Module, Debug)]
pub struct ValueEmbedding<B: BurnBackend> {
    /// A row per token, `[vocab_size, kv_heads · head_dim]`.
    pub table: TokenTable<B>,
    /// W, `[gate_inputs, kv_heads]`.
    pub gate: Param<Tensor<B, 2>>,
}

impl<B: Backend> ValueEmbedding<B> {
    /// Adds to the values in the last columns of `qkv`, `[batch, seq, width]`. `x` is the attention's input
    /// `[batch, seq, d_model]`, `ids` are `[batch, seq]`.
    pub(crate) fn added(
        &self,
        qkv: Tensor<B, 3>,
        x: &Tensor<B, 3>,
        ids: Tensor<B, 2, Int>,
    ) -> Tensor<B, 3> {
        let [inputs, _] = self.gate.dims();
        let read = x.clone().narrow(2, 0, inputs);
        let gates = ops::linear(read, self.gate.val(), None, None, Precision::default());
        let gates = activation::sigmoid(gates) * 2.0; // [batch, seq, kv_heads]
        let rows = self.table.look_up_after(x, ids); // [batch, seq, kv_heads · head_dim]
        ops::add_gated_columns(qkv, gates, rows)
    }
}
