//! A normalisation with its gain and bias.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend as BurnBackend;

use emberlm_kernels::{Backend, Normalization, ops};

use crate::config::Norm;
use crate::init::Initializer;

/// `gain · normalised(x) + bias` over the last dimension.
#[derive(Module, Debug)]
pub struct NormLayer<B: BurnBackend> {
    /// `[width]`.
    pub gain: Option<Param<Tensor<B, 1>>>,
    /// `[width]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
    #[module(skip)]
    kind: Normalization,
}

impl<B: Backend> NormLayer<B> {
    pub(crate) fn init(from: &Initializer<'_, B>, norm: Norm, width: usize) -> Self {
        let (kind, gain, bias) = match norm {
            Norm::Layer { bias, epsilon } => (Normalization::Layer { epsilon }, true, bias),
            Norm::Rms { epsilon } => (Normalization::Rms { epsilon }, true, false),
            Norm::UnitRms { epsilon } => (Normalization::UnitRms { epsilon }, false, false),
        };
        Self {
            gain: gain.then(|| from.constant(1.0, width)),
            bias: bias.then(|| from.constant(0.0, width)),
            kind,
        }
    }

    /// Any shape whose last dimension is the norm's width.
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        let gain = self.gain.as_ref().map(Param::val);
        let bias = self.bias.as_ref().map(Param::val);
        ops::normalize(self.kind, x, gain, bias)
    }
}
