//! A linear map.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend as BurnBackend;

use emberlm_kernels::{Backend, Precision, ops};

use crate::init::{Initializer, MapInto};
use crate::int8::Int8Map;

/// `y = x W + b`, with `W` stored `[in, out]`.
#[derive(Module, Debug)]
pub struct Linear<B: BurnBackend> {
    /// `[in, out]`.
    pub weight: Param<Tensor<B, 2>>,
    /// `[out]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
    /// What serves in the weight's place, inside of a [`crate::InferenceDecoder`] alone.
    int8: Option<Int8Map<B>>,
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
            int8: None,
            precision: Precision::default(),
        }
    }

    /// `[batch, seq, in]` to `[batch, seq, out]`, added to `residual` where there is one.
    pub fn forward(&self, x: Tensor<B, 3>, residual: Option<Tensor<B, 3>>) -> Tensor<B, 3> {
        let bias = self.bias.as_ref().map(Param::val);
        match &self.int8 {
            Some(map) => map.forward(x, bias, residual),
            None => ops::linear(x, self.weight.val(), bias, residual, self.precision),
        }
    }

    /// Makes the weight 8 bits, and lets go of its floats: a single zero stands where they were.
    pub(crate) fn quantize(&mut self) {
        let weight = self.weight.val();
        let nothing = Param::from_tensor(Tensor::zeros([1, 1], &weight.device()));
        self.weight = nothing;
        self.int8 = Some(Int8Map::of_rows(weight.transpose()));
    }
}
