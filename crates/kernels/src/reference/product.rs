//! Matrix products of rounded operands, the only operation in which the reference implementations leave f32.

use burn::tensor::{DType, FloatDType, Tensor, TensorPrimitive};

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
    let wide = a.dtype();
    product_of_rounded(rounded(a, precision), rounded(b, precision), wide)
}

/// An operand for [`product_of_rounded`]: one that occurs in several products is rounded once.
pub(super) fn rounded<B: BaseOps, const D: usize>(
    x: Tensor<B, D>,
    precision: Precision,
) -> Tensor<B, D> {
    match precision {
        Precision::F32 => x,
        narrow => x.cast(narrow.kind()),
    }
}

/// The product of operands of one type, in the type `wide`.
pub(super) fn product_of_rounded<B: BaseOps, const D: usize>(
    a: Tensor<B, D>,
    b: Tensor<B, D>,
    wide: DType,
) -> Tensor<B, D> {
    if a.dtype() == wide {
        return matmul(a, b);
    }
    let [a, b] = [a, b].map(|x| x.into_primitive().tensor());
    let product = B::matmul_to(a, b, FloatDType::from(wide));
    Tensor::from_primitive(TensorPrimitive::Float(product))
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
