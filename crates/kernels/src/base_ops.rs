//! The operations of a backend that its other operations are composed of.

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Device, FloatDType};

use crate::{PackedTokens, Precision, RotaryLayout};

/// The operations that the reference implementations use in addition to Burn's. Every [`crate::Backend`] has them.
pub trait BaseOps: BurnBackend {
    /// See [`crate::Backend::matmul`].
    fn matmul(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self>;

    /// See [`crate::Backend::matmul_to`].
    fn matmul_to(a: FloatTensor<Self>, b: FloatTensor<Self>, kind: FloatDType)
    -> FloatTensor<Self>;

    /// See [`crate::Backend::block_bytes`].
    fn block_bytes(device: &Device<Self>) -> u64;

    /// See [`crate::Backend::multiplies_in`].
    fn multiplies_in(precision: Precision, device: &Device<Self>) -> bool;

    /// See [`crate::Backend::rotary`].
    fn rotary(
        layout: RotaryLayout,
        x: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
    ) -> FloatTensor<Self>;

    /// See [`crate::Backend::write_tokens`].
    fn write_tokens(
        held: FloatTensor<Self>,
        new: FloatTensor<Self>,
        start: usize,
    ) -> FloatTensor<Self>;

    /// See [`crate::Backend::unpack_tokens`].
    fn unpack_tokens(tokens: PackedTokens<Self>) -> FloatTensor<Self>;
}

impl Precision {
    /// The element type of operands.
    pub(crate) fn kind(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::BF16,
            Self::F16 => DType::F16,
        }
    }
}

/// Returns `precision` if the device of `x` supports products in it, and f32 otherwise.
pub(crate) fn usable<B: BaseOps>(precision: Precision, x: &FloatTensor<B>) -> Precision {
    match B::multiplies_in(precision, &B::float_device(x)) {
        true => precision,
        false => Precision::F32,
    }
}
