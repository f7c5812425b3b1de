//! Matrix products of rounded operands, the only operation in which the reference implementations leave f32.

use burn::tensor::{DType, Tensor};

use super::matmul;
use crate::{BaseOps, Precision};

/// [`matmul`] of operands rounded to `precision`, in the type of `a`. [`Precision::F32`] casts nothing.
///
/// Most of Burn's backends sum in f32 and round the sums to the type of the operands, so in f16 sums must not
/// exceed 65,504.
pub(super) fn product<B: BaseOps, const D: usize>(
    a: Tensor<B, D>,
    b: Tensor<B, D>,
    precision: Precision,
) -> Tensor<B, D> {
    let narrow = match precision {
        Precision::F32 => return matmul(a, b),
        Precision::Bf16 => DType::BF16,
        Precision::F16 => DType::F16,
    };
    let wide = a.dtype();
    matmul(a.cast(narrow), b.cast(narrow)).cast(wide)
}

/// [`product`] with an operand `a` whose elements are too small for f16. In f16, `a` is multiplied by `factor`, a
/// power of two to avoid rounding, and the product divided by it. The other precisions have enough range and
/// ignore `factor`.
pub(super) fn scaled_product<B: BaseOps, const D: usize>(
    a: Tensor<B, D>,
    b: Tensor<B, D>,
    precision: Precision,
    factor: f64,
) -> Tensor<B, D> {
    match precision {
        Precision::F16 => product(a * factor, b, precision) * (1.0 / factor),
        Precision::F32 | Precision::Bf16 => product(a, b, precision),
    }
}
