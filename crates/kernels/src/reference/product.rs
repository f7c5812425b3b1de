//! Matrix products of rounded factors: the one place where the reference implementations leave f32.

use burn::tensor::{DType, Tensor};

use super::matmul;
use crate::{Backend, Precision};

/// [`matmul`] of factors rounded to `precision` first, the product as wide as `a` was. In
/// [`Precision::F32`] nothing is cast.
///
/// Most of Burn's backends add up in f32 and round the sums to the factors' type: what is in f16 may not pass 65,504.
pub(super) fn product<B: Backend, const D: usize>(
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

/// [`product`] of an `a` whose elements are too small for f16: there it is multiplied by `factor`, a power of two so that
/// nothing is rounded, and the product divided by it. The other precisions reach as far down as f32 and do neither.
pub(super) fn raised_product<B: Backend, const D: usize>(
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
