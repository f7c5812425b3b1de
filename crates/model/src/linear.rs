//! A linear map.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend as BurnBackend;

use emberlm_kernels::{Backend, Precision, ops};

use crate::init::{Initializer, MapInto};

/// `y = x W + b`, with `W` stored `[in, out]`.
#[derive(Module, Debug)]
pub struct Linear<B: BurnBackend> {
    /// `[in, out]`.
    pub weight: Param<Tensor<B, 2>>,
    /// `[out]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
    #[module(skip)]
    pub(crate) precision: Precision,
}

impl<B: Backend> Linear<B> {
    pub(crate) fn init(
        from: &Initializer<'_, B>,
        path: &str,
        shape: [usize; 2],
        bias: bool,
        into: MapInto,
    ) -> Self {
        let [fan_in, out] = shape;
        Self {
            weight: from.map(&format!("{path}.weight"), shape, fan_in, into),
            bias: bias.then(|| from.bias(&format!("{path}.bias"), out, fan_in)),
            precision: Precision::default(),
        }
    }

    /// `[batch, seq, in]` to `[batch, seq, out]`, added to `residual` where there is one.
    pub fn forward(&self, x: Tensor<B, 3>, residual: Option<Tensor<B, 3>>) -> Tensor<B, 3> {
        let bias = self.bias.as_ref().map(Param::val);
        ops::linear(x, self.weight.val(), bias, residual, self.precision)
    }
}
