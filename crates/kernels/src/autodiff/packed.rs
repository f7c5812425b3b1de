//! Packed weights. They have no gradient, so these functions delegate to the inner backend.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::module::AutodiffModule;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Device, Tensor, TensorPrimitive};

use crate::cpu::packed::PackedMatrix;
use crate::{Backend, PackedFormat, PackedWeight};

pub(super) fn pack<B: Backend, C: CheckpointStrategy>(
    weight: FloatTensor<Autodiff<B, C>>,
    format: PackedFormat,
) -> PackedWeight<Autodiff<B, C>> {
    PackedWeight::from_inner(B::pack(weight.primitive, format))
}

pub(super) fn packed_from_host<B: Backend, C: CheckpointStrategy>(
    matrix: PackedMatrix,
    device: &Device<B>,
) -> PackedWeight<Autodiff<B, C>> {
    PackedWeight::from_inner(B::packed_from_host(matrix, device))
}

pub(super) fn unpack<B: Backend, C: CheckpointStrategy>(
    weight: &PackedWeight<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let floats = TensorPrimitive::Float(B::unpack(weight.valid()));
    let floats = Tensor::<B, 2>::from_primitive(floats);
    Tensor::<Autodiff<B, C>, 2>::from_inner(floats)
        .into_primitive()
        .tensor()
}
