//! Linear maps with weights of 8 bits.

use burn::tensor::{Bytes, DType};
use burn_flex::{Flex, FlexTensor, Layout};

use super::buffer::{dense, elements, place};
use super::linear::{added, matrix, out_shape, placed, rows};
use crate::Int8Weight;
use crate::cpu::int8::{Int8View, matvec, quantize};
use crate::cpu::matrix::MatrixMut;

/// Whether integers are of 8 bits.
pub(super) fn is_i8(values: &FlexTensor) -> bool {
    values.dtype() == DType::I8
}

pub(super) fn quantize_rows(weight: FlexTensor) -> Int8Weight<Flex> {
    let weight = placed(weight);
    let w = matrix(&weight);
    let shape = [w.rows, w.columns];
    let made = quantize(w);
    let tensor = |bytes, layout, dtype| FlexTensor::new(bytes, layout, dtype);
    Int8Weight {
        values: tensor(
            Bytes::from_elems(made.values),
            Layout::contiguous(shape.into()),
            DType::I8,
        ),
        scales: tensor(
            Bytes::from_elems(made.scales),
            Layout::contiguous([shape[0]].into()),
            DType::F32,
        ),
    }
}

/// With integers of 8 bits.
pub(super) fn linear_int8(
    x: FlexTensor,
    weight: Int8Weight<Flex>,
    bias: Option<FlexTensor>,
    residual: Option<FlexTensor>,
) -> FlexTensor {
    let (x, scales) = (dense(x), dense(weight.scales));
    let values = dense(weight.values);
    let w = Int8View {
        values: &values.storage()[place(&values)],
        scales: elements(&scales),
        columns: values.layout().shape()[1],
    };
    let (x_rows, out_width) = (rows(&x), w.scales.len());
    added(
        bias,
        residual,
        || out_shape(&x, out_width),
        |out, output| {
            let out = MatrixMut::row_major(out, x_rows.rows, out_width);
            matvec(out, x_rows, w, output);
        },
    )
}
