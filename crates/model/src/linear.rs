//! A linear map.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend as BurnBackend;

use emberlm_kernels::Backend;

use crate::init::{Initializer, MapInto};

/// `y = x W + b`, with `W` stored `[in, out]`.
#[derive(Module, Debug)]
pub struct Linear<B: BurnBackend> {
    /// `[in, out]`.
    pub weight: Param<Tensor<B, 2>>,
    /// `[out]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
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
        }
    }

    /// `[batch, seq, in]` to `[batch, seq, out]`, as one product over all tokens: a batched one would make the
    /// weight's gradient once per sequence and add them up.
    pub fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let [batch, seq, width] = x.dims();
        let y = x.reshape([batch * seq, width]).matmul(self.weight.val()); // [tokens, out]
        let y = match &self.bias {
            Some(bias) => y + bias.val().unsqueeze::<2>(),
            None => y,
        };
        let out = y.dims()[1];
        y.reshape([batch, seq, out])
    }
}
