//! A linear map whose weight has 8 bits.

use burn::module::Module;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Int, Tensor};

use emberlm_kernels::{Backend, ops};

/// `W[l, j] ≈ scales[j] · values[j, l]`.
#[derive(Module, Debug)]
pub(crate) struct Int8Map<B: BurnBackend> {
    /// `[out, in]`.
    values: Tensor<B, 2, Int>,
    /// `[out]`.
    scales: Tensor<B, 1>,
}

impl<B: Backend> Int8Map<B> {
    /// Of a weight `[out, in]`.
    pub(crate) fn of_rows(weight: Tensor<B, 2>) -> Self {
        let (values, scales) = ops::quantize_rows(weight);
        Self { values, scales }
    }

    fn outputs(&self) -> usize {
        self.scales.dims()[0]
    }

    /// `[…, in]` to `[…, out]`, added to `residual` where there is one.
    pub(crate) fn forward<const D: usize>(
        &self,
        x: Tensor<B, D>,
        bias: Option<Tensor<B, 1>>,
        residual: Option<Tensor<B, D>>,
    ) -> Tensor<B, D> {
        let weight = (self.values.clone(), self.scales.clone());
        ops::linear_int8(x, weight, bias, residual)
    }
}

/// Maps of one input whose outputs lie one after the other: `[rows, in]` to `[rows, Σ out]`, with `bias` `[Σ out]`.
pub(crate) fn side_by_side<B: Backend>(
    maps: &[Int8Map<B>],
    x: Tensor<B, 2>,
    bias: Option<Tensor<B, 1>>,
) -> Tensor<B, 2> {
    if let [map] = maps {
        return map.forward(x, bias, None);
    }
    let mut start = 0;
    let outputs = maps.iter().map(|map| {
        let own = bias
            .clone()
            .map(|bias| bias.narrow(0, start, map.outputs()));
        start += map.outputs();
        map.forward(x.clone(), own, None)
    });
    Tensor::cat(outputs.collect(), 1)
}
