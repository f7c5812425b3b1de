//! Packed weights on a device.

use burn::module::Module;
use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Device, Element, Int, Tensor, TensorData, TensorPrimitive};

use crate::PackedFormat;
use crate::cpu::packed::PackedMatrix;

/// A linear layer's weight `[out, in]` in a [`PackedFormat`]. As a Burn module it has no parameters, since it is
/// not trained.
///
/// Created by [`crate::ops::pack`], or from bytes and scales by [`crate::ops::packed_from_host`].
#[derive(Module, Debug)]
pub struct PackedWeight<B: Backend> {
    /// `[out, row_bytes]`. Backends without 8-bit integers use a wider type.
    bytes: Tensor<B, 2, Int>,
    /// `[out, row_scales]`.
    scales: Tensor<B, 2>,
    #[module(skip)]
    format: PackedFormat,
    #[module(skip)]
    columns: usize,
}

impl<B: Backend> PackedWeight<B> {
    /// Creates a weight of `shape` `[out, in]` from its bytes `[out, row_bytes]` and scales `[out, row_scales]`.
    pub(crate) fn new(
        format: PackedFormat,
        bytes: IntTensor<B>,
        scales: FloatTensor<B>,
        shape: [usize; 2],
    ) -> Self {
        Self {
            bytes: Tensor::from_primitive(bytes),
            scales: Tensor::from_primitive(TensorPrimitive::Float(scales)),
            format,
            columns: shape[1],
        }
    }

    /// The storage format.
    pub fn format(&self) -> PackedFormat {
        self.format
    }

    /// The shape of the unpacked weight, `[out, in]`.
    pub fn shape(&self) -> [usize; 2] {
        [self.scales.dims()[0], self.columns]
    }

    /// The device of the weight.
    pub fn device(&self) -> Device<B> {
        self.scales.device()
    }

    /// Returns rows `start..start + rows`, without a copy on backends that narrow without one.
    pub fn narrow_rows(&self, start: usize, rows: usize) -> Self {
        Self {
            bytes: self.bytes.clone().narrow(0, start, rows),
            scales: self.scales.clone().narrow(0, start, rows),
            ..self.clone()
        }
    }

    /// Copies the weight to the host's memory.
    pub fn to_host(&self) -> PackedMatrix {
        PackedMatrix {
            format: self.format,
            bytes: elements(&self.bytes.to_data()),
            scales: elements(&self.scales.to_data()),
            columns: self.columns,
        }
    }

    /// Returns the bytes `[out, row_bytes]` and the scales `[out, row_scales]`.
    pub fn into_tensors(self) -> (Tensor<B, 2, Int>, Tensor<B, 2>) {
        (self.bytes, self.scales)
    }

    /// Returns the bytes and scales as the backend's primitives.
    #[cfg(feature = "flex")]
    pub(crate) fn primitives(&self) -> (IntTensor<B>, FloatTensor<B>) {
        let (bytes, scales) = self.clone().into_tensors();
        (bytes.into_primitive(), scales.into_primitive().tensor())
    }
}

/// Returns the elements of a tensor, converted if they have a different type.
fn elements<E: Element>(data: &TensorData) -> Vec<E> {
    match data.as_slice::<E>() {
        Ok(elements) => elements.to_vec(),
        Err(_) => data.iter::<E>().collect(),
    }
}
