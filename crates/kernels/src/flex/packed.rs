//! Linear layers with packed weights.

use burn::tensor::{Bytes, DType, Tensor};
use burn_flex::{Flex, FlexTensor, Layout};

use super::buffer::{dense, dims, element_range, filled, integers, is_f32};
use super::linear::{matrix, out_shape, rows, with_bias_and_residual, with_positive_strides};
use crate::cpu::matrix::MatrixMut;
use crate::cpu::packed::{self, PackedMatrix, PackedView};
use crate::packed_weight::PackedValues;
use crate::{Backend, PackedFormat, PackedWeight, Precision, reference};

pub(super) fn pack(weight: FlexTensor, format: PackedFormat) -> PackedWeight<Flex> {
    if !is_f32(&[&weight]) {
        return reference::pack::<Flex>(weight, format);
    }
    let weight = with_positive_strides(weight);
    packed_from_host(packed::pack(format, matrix(&weight)))
}

pub(super) fn packed_from_host(matrix: PackedMatrix) -> PackedWeight<Flex> {
    let (format, [rows, columns]) = (matrix.format(), matrix.shape());
    let shape = [rows, format.row_bytes(columns)];
    let bytes = Bytes::from_elems(matrix.into_bytes());
    let bytes = FlexTensor::new(bytes, Layout::contiguous(shape.into()), DType::U8);
    let bytes = PackedValues::Bytes(Tensor::from_primitive(bytes));
    PackedWeight::new(format, bytes, columns)
}

pub(super) fn unpack(weight: PackedWeight<Flex>) -> FlexTensor {
    match DenseWeight::of(&weight) {
        Some(dense) => filled(weight.shape(), |out| packed::unpack(dense.view(), out)),
        None => reference::unpack::<Flex>(weight),
    }
}

pub(super) fn embedding(table: PackedWeight<Flex>, ids: FlexTensor) -> FlexTensor {
    let Some(dense) = DenseWeight::of(&table) else {
        return <Flex as Backend>::embedding(unpack(table), ids);
    };
    let shape = [dims(&ids), vec![table.shape()[1]]].concat();
    filled(shape, |out| {
        packed::gather(dense.view(), &integers(&ids), out)
    })
}

pub(super) fn linear_packed(
    x: FlexTensor,
    weight: PackedWeight<Flex>,
    bias: Option<FlexTensor>,
    residual: Option<FlexTensor>,
    precision: Precision,
) -> FlexTensor {
    let packed = DenseWeight::of(&weight).filter(|_| is_f32(&[&x]));
    let Some(packed) = packed else {
        return reference::linear_packed::<Flex>(x, weight, bias, residual, precision);
    };
    let x = dense(x);
    let (x_rows, w) = (rows(&x), packed.view());
    let out_width = packed.shape[0];
    with_bias_and_residual(
        bias,
        residual,
        || out_shape(&x, out_width),
        |out, output| {
            let out = MatrixMut::row_major(out, x_rows.rows, out_width);
            packed::product(out, x_rows, w, output, precision);
        },
    )
}

/// The bytes of a packed weight, contiguous.
struct DenseWeight {
    format: PackedFormat,
    bytes: FlexTensor,
    shape: [usize; 2],
}

impl DenseWeight {
    /// Returns `None` if the weight was not packed by [`pack`].
    fn of(weight: &PackedWeight<Flex>) -> Option<Self> {
        let bytes = weight.bytes()?;
        (bytes.dtype() == DType::U8).then(|| Self {
            format: weight.format(),
            bytes: dense(bytes),
            shape: weight.shape(),
        })
    }

    fn view(&self) -> PackedView<'_> {
        PackedView {
            format: self.format,
            bytes: &self.bytes.bytes()[element_range(&self.bytes)],
            shape: self.shape,
        }
    }
}
