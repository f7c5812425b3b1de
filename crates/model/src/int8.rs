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
