//! Packed weights of consecutive outputs, possibly in different formats.

use burn::module::Module;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Int, Tensor};

use emberlm_kernels::{Activation, Backend, PackedFormat, PackedWeight, Precision, ops};

/// A packed matrix `[out, in]` in parts of consecutive rows. Parts exist because a device's buffers are limited, and
/// because files store the rows of a fused layer, such as queries and values, in different formats. Packed weights are
/// not parameters.
#[derive(Module, Debug)]
pub struct PackedRows<B: BurnBackend> {
    parts: Vec<PackedWeight<B>>,
}

impl<B: BurnBackend> PackedRows<B> {
    /// Joins at least one part, in row order.
    pub(crate) fn of(parts: Vec<PackedWeight<B>>) -> Self {
        Self { parts }
    }

    /// The parts in row order.
    pub fn parts(&self) -> &[PackedWeight<B>] {
        &self.parts
    }

    /// The shape of the unpacked matrix, `[out, in]`.
    pub fn shape(&self) -> [usize; 2] {
        let columns = self.parts.first().map_or(0, |part| part.shape()[1]);
        [self.parts.iter().map(|part| part.shape()[0]).sum(), columns]
    }

    /// The format of the first part.
    pub(crate) fn format(&self) -> Option<PackedFormat> {
        self.parts.first().map(PackedWeight::format)
    }

    /// The device of the first part.
    pub(crate) fn device(&self) -> Device<B> {
        self.parts
            .first()
            .map_or_else(Default::default, PackedWeight::device)
    }
}

impl<B: Backend> PackedRows<B> {
    /// The rows of each part in f32, `[rows, in]`.
    pub(crate) fn values(&self) -> Vec<Tensor<B, 2>> {
        self.parts.iter().cloned().map(ops::unpack).collect()
    }

    /// `residual + x Wᵀ + b`: `[…, in]` to `[…, out]`, with factors in `precision`.
    pub(crate) fn forward<const D: usize>(
        &self,
        x: Tensor<B, D>,
        bias: Option<Tensor<B, 1>>,
        residual: Option<Tensor<B, D>>,
        precision: Precision,
    ) -> Tensor<B, D> {
        if let [whole] = self.parts.as_slice() {
            return ops::linear_packed(x, whole.clone(), bias, residual, precision);
        }
        let mut start = 0;
        let parts = self.parts.iter().map(|part| {
            let rows = part.shape()[0];
            let bias = bias.clone().map(|bias| bias.narrow(0, start, rows));
            start += rows;
            ops::linear_packed(x.clone(), part.clone(), bias, None, precision)
        });
        let y = Tensor::cat(parts.collect(), D - 1);
        match residual {
            Some(residual) => residual + y,
            None => y,
        }
    }

    /// `f(x Wᵀ + b)`: `[…, in]` to `[…, out]`, with factors in `precision`.
    pub(crate) fn activated<const D: usize>(
        &self,
        kind: Activation,
        x: Tensor<B, D>,
        bias: Option<Tensor<B, 1>>,
        precision: Precision,
    ) -> Tensor<B, D> {
        match self.parts.as_slice() {
            [whole] => ops::linear_packed_activation(kind, x, whole.clone(), bias, precision),
            _ => ops::activation(kind, self.forward(x, bias, None, precision)),
        }
    }

    /// Unpacks the rows of `ids`: `[batch, seq]` to `[batch, seq, in]`.
    pub(crate) fn look_up(&self, ids: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        match self.parts.as_slice() {
            [whole] => ops::embedding_packed(whole.clone(), ids),
            _ => ops::embedding_parts(self.values(), ids),
        }
    }
}
