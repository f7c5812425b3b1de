//! Linear layers with packed weights, on backends without kernels for them: the host packs and unpacks, and the
//! device holds f32 values.

use burn::tensor::Device;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;

use super::{linear, primitive, typed};
use crate::cpu::matrix::Matrix;
use crate::cpu::packed::{self, PackedMatrix};
use crate::packed_weight::{PackedValues, unpacked};
use crate::{BaseOps, LinearInputs, PackedFormat, PackedWeight, Precision};

/// See [`crate::Backend::pack`].
pub fn pack<B: BurnBackend>(weight: FloatTensor<B>, format: PackedFormat) -> PackedWeight<B> {
    let device = B::float_device(&weight);
    packed_from_host(pack_on_host::<B>(weight, format), &device)
}

/// Packs a weight `[out, in]` in the host's memory.
pub fn pack_on_host<B: BurnBackend>(weight: FloatTensor<B>, format: PackedFormat) -> PackedMatrix {
    let weight = typed::<B, 2>(weight);
    let [rows, columns] = weight.dims();
    let values: Vec<f32> = weight.into_data().iter::<f32>().collect();
    packed::pack(format, Matrix::row_major(&values, rows, columns))
}

/// See [`crate::Backend::packed_from_host`].
pub fn packed_from_host<B: BurnBackend>(
    matrix: PackedMatrix,
    device: &Device<B>,
) -> PackedWeight<B> {
    let values = PackedValues::Floats(unpacked(&matrix, device));
    PackedWeight::new(matrix.format(), values, matrix.shape()[1])
}

/// See [`crate::Backend::unpack`].
pub fn unpack<B: BurnBackend>(weight: PackedWeight<B>) -> FloatTensor<B> {
    primitive(weight.unpacked())
}

/// See [`crate::Backend::linear_packed`]: [`unpack`], then [`linear()`].
pub fn linear_packed<B: BaseOps>(
    x: FloatTensor<B>,
    weight: PackedWeight<B>,
    bias: Option<FloatTensor<B>>,
    residual: Option<FloatTensor<B>>,
    precision: Precision,
) -> FloatTensor<B> {
    let weight = typed::<B, 2>(unpack::<B>(weight)).transpose(); // [in, out]
    let inputs = LinearInputs::<B> {
        x,
        weight: primitive(weight),
        bias,
        residual,
    };
    linear(inputs, precision)
}
