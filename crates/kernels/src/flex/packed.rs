//! Linear layers with packed weights.

use burn::tensor::{Bytes, DType};
use burn_flex::{Flex, FlexTensor, Layout};

use super::buffer::{dense, element_range, elements, filled, is_f32};
use super::linear::{matrix, out_shape, rows, with_bias_and_residual, with_positive_strides};
use crate::cpu::matrix::MatrixMut;
use crate::cpu::packed::{self, PackedMatrix, PackedView};
use crate::{PackedFormat, PackedWeight, reference};

pub(super) fn pack(weight: FlexTensor, format: PackedFormat) -> PackedWeight<Flex> {
    if !is_f32(&[&weight]) {
        return reference::pack::<Flex>(weight, format);
    }
    let weight = with_positive_strides(weight);
    packed_from_host(packed::pack(format, matrix(&weight)))
}

pub(super) fn packed_from_host(matrix: PackedMatrix) -> PackedWeight<Flex> {
    let (format, shape) = (matrix.format, matrix.shape());
    let bytes = [shape[0], format.row_bytes(shape[1])];
    let scales = [shape[0], format.row_scales(shape[1])];
    let tensor = |elements, shape: [usize; 2], dtype| {
        FlexTensor::new(elements, Layout::contiguous(shape.into()), dtype)
    };
    PackedWeight::new(
        format,
        tensor(Bytes::from_elems(matrix.bytes), bytes, DType::I8),
        tensor(Bytes::from_elems(matrix.scales), scales, DType::F32),
        shape,
    )
}

pub(super) fn unpack(weight: PackedWeight<Flex>) -> FlexTensor {
    match DenseWeight::of(&weight) {
        Some(dense) => filled(weight.shape(), |out| packed::unpack(dense.view(), out)),
        None => reference::unpack::<Flex>(weight),
    }
}

pub(super) fn linear_packed(
    x: FlexTensor,
    weight: PackedWeight<Flex>,
    bias: Option<FlexTensor>,
    residual: Option<FlexTensor>,
) -> FlexTensor {
    let packed = DenseWeight::of(&weight).filter(|_| is_f32(&[&x]));
    let Some(packed) = packed else {
        return reference::linear_packed::<Flex>(x, weight, bias, residual);
    };
    let x = dense(x);
    let (x_rows, w) = (rows(&x), packed.view());
    let out_width = w.rows();
    with_bias_and_residual(
        bias,
        residual,
        || out_shape(&x, out_width),
        |out, output| {
            let out = MatrixMut::row_major(out, x_rows.rows, out_width);
            packed::product(out, x_rows, w, output);
        },
    )
}

/// The dense tensors of a packed weight, in the types that the kernels read.
struct DenseWeight {
    format: PackedFormat,
    bytes: FlexTensor,
    scales: FlexTensor,
    columns: usize,
}

impl DenseWeight {
    /// Returns `None` if the weight was not packed by [`pack`].
    fn of(weight: &PackedWeight<Flex>) -> Option<Self> {
        let (bytes, scales) = weight.primitives();
        (bytes.dtype() == DType::I8 && is_f32(&[&scales])).then(|| Self {
            format: weight.format(),
            bytes: dense(bytes),
            scales: dense(scales),
            columns: weight.shape()[1],
        })
    }

    fn view(&self) -> PackedView<'_> {
        PackedView {
            format: self.format,
            bytes: &self.bytes.storage()[element_range(&self.bytes)],
            scales: elements(&self.scales),
            columns: self.columns,
        }
    }
}
