//! The mix of the residual stream and the embeddings at the input of a block.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend as BurnBackend;

use emberlm_kernels::{Backend, ops};

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
        // The dependencies order the backward pass: the gradients of the factors are complete when that of `x` is, and those
        // of x₀ add up from the last block on, before the residual stream's.
        let stream = ops::depending_on(self.stream.val(), &x).unsqueeze::<3>();
        let x = x * stream;
        let embedding = ops::depending_on(self.embedding.val(), &x).unsqueeze::<3>();
        x + embedded * embedding
    }
}
