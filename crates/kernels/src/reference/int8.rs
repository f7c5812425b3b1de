//! Linear maps with weights of 8 bits.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Int, Tensor};

use super::{linear, primitive, typed};
use crate::{Backend, Int8Weight, LinearInputs, Precision};

/// See [`crate::Backend::quantize_rows`].
pub fn quantize_rows<B: Backend>(weight: FloatTensor<B>) -> Int8Weight<B> {
    let weight = typed::<B, 2>(weight); // [out, in]
    // Without `abs`: Burn 0.21's on ndarray forgets how a transposed tensor lies.
    let largest = weight
        .clone()
        .max_dim(1)
        .max_pair(-weight.clone().min_dim(1));
    // No maximum is sure to see what is NaN: a sum is.
    let none = weight.clone().sum_dim(1) * 0.0; // [out, 1]
    let scales = largest * (1.0 / 127.0) + none; // [out, 1]
    // A row of zeros has no scale: it is divided by one.
    let zeros = scales.clone().equal_elem(0.0);
    let values = weight / scales.clone().mask_fill(zeros, 1.0);
    // What is no number is no integer: its row's scale alone tells.
    let broken = values.clone().is_nan();
    let values = values.mask_fill(broken, 0.0).round();
    let values = values.clamp(-127.0, 127.0).int(); // [out, in]
    Int8Weight {
        values: values.into_primitive(),
        scales: primitive(scales.squeeze_dim::<1>(1)),
    }
}

/// See [`crate::Backend::linear_int8`]. The weight is made again as floats for each product.
pub fn linear_int8<B: Backend>(
    x: FloatTensor<B>,
    weight: Int8Weight<B>,
    bias: Option<FloatTensor<B>>,
    residual: Option<FloatTensor<B>>,
) -> FloatTensor<B> {
    let values = Tensor::<B, 2, Int>::from_primitive(weight.values).float(); // [out, in]
    let scales = typed::<B, 1>(weight.scales).unsqueeze_dim::<2>(1); // [out, 1]
    let inputs = LinearInputs::<B> {
        x,
        weight: primitive((values * scales).transpose()),
        bias,
        residual,
    };
    linear(inputs, Precision::F32)
}
