//! The cross-attention sublayer of a block, which attends to the encoder's output in an encoder–decoder.

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend as BurnBackend;

use emberlm_kernels::{AttentionMask, Backend};

use crate::nn::context::BlockMemory;
use crate::nn::cross_attention::CrossAttention;
use crate::nn::norm::Norm;

/// Cross-attention and its norms, between the self-attention and the feed-forward layer of a block.
#[derive(Module, Debug)]
pub struct CrossSublayer<B: BurnBackend> {
    /// Norm before the cross-attention, or after the residual sum with post-norm wiring; `None` if the wiring shares
    /// the block's first norm.
    pub norm: Option<Norm<B>>,
    /// Cross-attention to the memory.
    pub attention: CrossAttention<B>,
    /// Norm after the cross-attention, with sandwich wiring.
    pub norm_after: Option<Norm<B>>,
}

impl<B: Backend> CrossSublayer<B> {
    /// Applies the cross-attention to `x` `[batch, seq, d_model]` and adds `residual` if given.
    pub(crate) fn attend(
        &self,
        x: Tensor<B, 3>,
        memory: BlockMemory<'_, B>,
        residual: Option<Tensor<B, 3>>,
    ) -> Tensor<B, 3> {
        let heads = memory.heads;
        self.attention.forward(x, heads, mask(memory), residual)
    }

    /// The weights that [`CrossSublayer::attend`] applies to the values: `[batch, heads, seq, memory]`.
    pub(crate) fn weights(&self, x: Tensor<B, 3>, memory: BlockMemory<'_, B>) -> Tensor<B, 4> {
        let heads = memory.heads;
        self.attention.weights(x, heads, mask(memory))
    }
}

/// The mask of a memory's padding.
fn mask<B: Backend>(memory: BlockMemory<'_, B>) -> AttentionMask<B> {
    AttentionMask {
        padding: memory.padding,
        ..AttentionMask::default()
    }
}
