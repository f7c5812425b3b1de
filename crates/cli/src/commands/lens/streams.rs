//! A probe that collects the residual streams between blocks.

use burn::tensor::Tensor;
use emberlm_kernels::Backend;
use emberlm_model::nn::probe::{Point, Probe, Site};

/// The residual stream before the first block and after each block, `[batch, seq, d_model]` each.
#[derive(Debug)]
pub struct Streams<B: Backend> {
    pub tensors: Vec<Tensor<B, 3>>,
}

impl<B: Backend> Default for Streams<B> {
    fn default() -> Self {
        Self {
            tensors: Vec::new(),
        }
    }
}

impl<B: Backend> Probe<B> for Streams<B> {
    fn rows(&mut self, site: Site, x: Tensor<B, 3>) -> Tensor<B, 3> {
        if let Site::Block {
            layer: 0,
            point: Point::ResidPre,
        }
        | Site::Block {
            point: Point::ResidPost,
            ..
        } = site
        {
            self.tensors.push(x.clone());
        }
        x
    }

    fn heads(&mut self, _: Site, x: Tensor<B, 4>) -> Tensor<B, 4> {
        x
    }
}
