//! Linear layers with packed weights.

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Device, Int, Tensor, TensorData};

use super::{linear, primitive, typed};
use crate::cpu::packed::PackedMatrix;
use crate::{Backend, LinearInputs, PackedFormat, PackedWeight, Precision};

/// See [`crate::Backend::pack`].
pub fn pack<B: BurnBackend>(weight: FloatTensor<B>, format: PackedFormat) -> PackedWeight<B> {
    let weight = typed::<B, 2>(weight); // [out, in]
    match format {
        PackedFormat::Int8 => pack_int8(weight),
    }
}

fn pack_int8<B: BurnBackend>(weight: Tensor<B, 2>) -> PackedWeight<B> {
    let shape = weight.dims();
    // Not `abs`: on ndarray, Burn 0.21's implementation ignores the strides of transposed tensors.
    let largest = weight
        .clone()
        .max_dim(1)
        .max_pair(-weight.clone().min_dim(1));
    // A maximum may ignore NaN, but a sum does not.
    let none = weight.clone().sum_dim(1) * 0.0; // [out, 1]
    let scales = largest * (1.0 / 127.0) + none; // [out, 1]
    // A row of zeros has a scale of 0; it is divided by 1 instead.
    let zeros = scales.clone().equal_elem(0.0);
    let values = weight / scales.clone().mask_fill(zeros, 1.0);
    // NaN has no integer value; it only shows in the scale of its row.
    let broken = values.clone().is_nan();
    let values = values.mask_fill(broken, 0.0).round();
    let values = values.clamp(-127.0, 127.0).int(); // [out, in]
    PackedWeight::new(
        PackedFormat::Int8,
        values.into_primitive(),
        primitive(scales),
        shape,
    )
}

/// See [`crate::Backend::packed_from_host`]. The bytes use the device's default integer type.
pub fn packed_from_host<B: BurnBackend>(
    matrix: PackedMatrix,
    device: &Device<B>,
) -> PackedWeight<B> {
    let (format, [rows, columns]) = (matrix.format, matrix.shape());
    let bytes = TensorData::new(matrix.bytes, [rows, format.row_bytes(columns)]);
    let scales = TensorData::new(matrix.scales, [rows, format.row_scales(columns)]);
    PackedWeight::new(
        format,
        Tensor::<B, 2, Int>::from_data(bytes, device).into_primitive(),
        primitive(Tensor::<B, 2>::from_data(scales, device)),
        [rows, columns],
    )
}

/// See [`crate::Backend::unpack`].
pub fn unpack<B: BurnBackend>(weight: PackedWeight<B>) -> FloatTensor<B> {
    let format = weight.format();
    let (bytes, scales) = weight.into_tensors();
    match format {
        PackedFormat::Int8 => primitive(bytes.float() * scales), // [out, in] · [out, 1]
    }
}

/// See [`crate::Backend::linear_packed`]: [`unpack`], then [`linear()`]. The weight is unpacked for each product.
pub fn linear_packed<B: Backend>(
    x: FloatTensor<B>,
    weight: PackedWeight<B>,
    bias: Option<FloatTensor<B>>,
    residual: Option<FloatTensor<B>>,
) -> FloatTensor<B> {
    let weight = typed::<B, 2>(unpack::<B>(weight)).transpose(); // [in, out]
    let inputs = LinearInputs::<B> {
        x,
        weight: primitive(weight),
        bias,
        residual,
    };
    linear(inputs, Precision::F32)
}
