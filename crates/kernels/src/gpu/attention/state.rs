//! The state between the passes.

use burn::tensor::TensorMetadata;
use burn::tensor::ops::{FloatTensor, IntTensor};

use super::task::Task;
use super::words::draws;
use crate::reference::BlockedState;
use crate::reference::self_attention::separated;
use crate::{AttentionMask, BaseOps, SelfAttention};

/// The state of [`super::TiledAttention`]. It is linear in the sequence length.
#[derive(Clone, Debug)]
pub struct TiledState<B: BaseOps>(pub(super) Saved<B>);

#[derive(Clone, Debug)]
pub(super) enum Saved<B: BaseOps> {
    Tiled(Tiled<B>),
    /// Of an attention that the kernels do not support.
    Reference(BlockedState<B>),
}

/// The tensors of an attention with its results.
#[derive(Clone, Debug)]
pub(super) struct Tiled<B: BaseOps> {
    pub task: Task,
    /// Queries, keys and values `[batch, heads, tokens, head_dim]`, or three times the output of a fused projection with
    /// rotated queries and keys.
    pub inputs: [FloatTensor<B>; 3],
    pub mask: AttentionMask<B>,
    /// See [`super::words`].
    pub words: Option<IntTensor<B>>,
    /// The output, as it was returned.
    pub output: FloatTensor<B>,
    /// `ln Σ exp(scores)` of each query, `[batch, heads, q_len, 1]`.
    pub log_sums: FloatTensor<B>,
}

impl<B: BaseOps> TiledState<B> {
    /// Returns the state of the reference implementation with the same contents.
    pub fn into_reference(self) -> BlockedState<B> {
        match self.0 {
            Saved::Tiled(tiled) => tiled.into_reference(),
            Saved::Reference(state) => state,
        }
    }
}

impl<B: BaseOps> Tiled<B> {
    pub fn into_reference(self) -> BlockedState<B> {
        let Self { task, inputs, .. } = self;
        let [q, k, v] = match inputs[0].rank() {
            3 => {
                let [qkv, _, _] = inputs;
                let config = SelfAttention {
                    heads: task.heads,
                    kv_heads: task.kv_heads,
                    head_dim: task.head_dim,
                    options: task.options,
                };
                separated::<B>(qkv, None, config)
            }
            _ => inputs,
        };
        let words = self.words.filter(|_| task.dropout);
        // The kernels compute them in f32.
        let log_sums = B::float_cast(self.log_sums, q.dtype().into());
        BlockedState {
            q,
            k,
            v,
            output: self.output,
            log_sums,
            mask: self.mask,
            draws: words.map(|words| draws::<B>(&task, words)),
        }
    }
}
