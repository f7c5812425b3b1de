//! The mix of the residual stream and the embeddings at the input of a block.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend as BurnBackend;

use emberlm_kernels::Backend;

use crate::config;
use crate::nn::init::Initializer;

/// Computes `a x + b x₀`.
#[derive(Module, Debug)]
pub struct ResidualMix<B: BurnBackend> {
    /// The factor `a` on the residual stream, `[1]`.
    pub stream: Param<Tensor<B, 1>>,
    /// The factor `b` on the embeddings, `[1]`.
    pub embedding: Param<Tensor<B, 1>>,
}

impl config::ResidualMix {
    /// Number of parameters in a block.
    pub(crate) const PARAMETERS: u128 = 2;

    pub(crate) fn init_from<B: Backend>(&self, from: &Initializer<'_, B>) -> ResidualMix<B> {
        ResidualMix {
            stream: from.constant(self.stream as f32, 1),
            embedding: from.constant(self.embedding as f32, 1),
        }
    }
}

impl<B: Backend> ResidualMix<B> {
    /// Mixes the residual stream and the embeddings, each `[batch, seq, d_model]`.
    pub fn forward(&self, x: Tensor<B, 3>, embedded: Tensor<B, 3>) -> Tensor<B, 3> {
        let factor = |of: &Param<Tensor<B, 1>>| of.val().unsqueeze::<3>();
        x * factor(&self.stream) + embedded * factor(&self.embedding)
    }
}
