//! The cross-attention sublayer of a block, by which an encoder–decoder's decoder attends to the encoder's output.

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend as BurnBackend;

use emberlm_kernels::{AttentionMask, Backend};

use crate::context::BlockMemory;
use crate::cross_attention::CrossAttention;
use crate::norm::Norm;

/// A cross-attention with its norms, between a block's self-attention and its feed-forward layer.
#[derive(Module, Debug)]
pub struct CrossSublayer<B: BurnBackend> {
    /// Before the cross-attention, or in post-norm after the residual sum; none where the wiring shares the block's first.
    pub norm: Option<Norm<B>>,
    /// Attends to the memory.
    pub attention: CrossAttention<B>,
    /// After the cross-attention, in a sandwich.
    pub norm_after: Option<Norm<B>>,
}

impl<B: Backend> CrossSublayer<B> {
    /// The cross-attention of `x` `[batch, seq, d_model]`, added to `residual` where there is one.
    pub(crate) fn attend(
        &self,
        x: Tensor<B, 3>,
        memory: BlockMemory<'_, B>,
        residual: Option<Tensor<B, 3>>,
    ) -> Tensor<B, 3> {
        let mask = AttentionMask {
            padding: memory.padding,
            ..AttentionMask::default()
        };
        self.attention.forward(x, memory.heads, mask, residual)
    }
}
