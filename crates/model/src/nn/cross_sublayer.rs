//! The cross-attention sublayer of a block, which attends to the encoder's output in an encoder–decoder.

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend as BurnBackend;

use emberlm_kernels::Backend;

use crate::nn::cross_attention::CrossAttention;
use crate::nn::norm::Norm;
use crate::nn::packed::{BlockPass, Span};

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
    /// [`CrossAttention::run_rows`] in a pass.
    pub(crate) fn run_rows(
        &self,
        x: Tensor<B, 3>,
        residual: Option<Tensor<B, 3>>,
        spans: &[Span<'_, B>],
        pass: &mut BlockPass<'_, B>,
    ) -> Tensor<B, 3> {
        let probe = &mut pass.probe;
        self.attention.run_rows(x, residual, spans, probe)
    }
}
