//! Packed weights on a device.

use burn::module::Module;
use burn::tensor::backend::Backend;
#[cfg(any(feature = "flex", feature = "gpu"))]
use burn::tensor::ops::IntTensor;
use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::PackedFormat;
use crate::cpu::matrix::Matrix;
use crate::cpu::packed::{self, PackedMatrix, pack};

/// A linear layer's weight `[out, in]` in a [`PackedFormat`]. As a Burn module it has no parameters, since it is
/// not trained.
///
/// `flex` and the GPU backends keep the bytes. A backend without kernels for them unpacks the weight to f32 when it is
/// created; [`crate::Backend::keeps_packed_weights`] distinguishes them.
///
/// Created by [`crate::ops::pack`], or from bytes by [`crate::ops::packed_from_host`].
#[derive(Module, Debug)]
pub struct PackedWeight<B: Backend> {
    values: PackedValues<B>,
    #[module(skip)]
    format: PackedFormat,
    #[module(skip)]
    columns: usize,
}

/// The values of a packed weight, as a backend stores them.
#[derive(Module, Debug)]
pub(crate) enum PackedValues<B: Backend> {
    /// The bytes of the rows: `[out, row_bytes]`, unsigned bytes, or on GPUs `[out, row_words]`, little-endian words of four
    /// bytes, padded with zeros.
    Bytes(Tensor<B, 2, Int>),
    /// The unpacked weight, `[out, in]`.
    Floats(Tensor<B, 2>),
}

impl<B: Backend> PackedWeight<B> {
    /// Creates a weight `[out, columns]`.
    pub(crate) fn new(format: PackedFormat, values: PackedValues<B>, columns: usize) -> Self {
        Self {
            values,
            format,
            columns,
        }
    }

    /// The storage format.
    pub fn format(&self) -> PackedFormat {
        self.format
    }

    /// The shape of the unpacked weight, `[out, in]`.
    pub fn shape(&self) -> [usize; 2] {
        let rows = match &self.values {
            PackedValues::Bytes(bytes) => bytes.dims()[0],
            PackedValues::Floats(floats) => floats.dims()[0],
        };
        [rows, self.columns]
    }

    /// The device of the weight.
    pub fn device(&self) -> Device<B> {
        match &self.values {
            PackedValues::Bytes(bytes) => bytes.device(),
            PackedValues::Floats(floats) => floats.device(),
        }
    }

    /// Returns rows `start..start + rows`, without a copy on backends that narrow without one.
    pub fn narrow_rows(&self, start: usize, rows: usize) -> Self {
        let values = match self.values.clone() {
            PackedValues::Bytes(bytes) => PackedValues::Bytes(bytes.narrow(0, start, rows)),
            PackedValues::Floats(floats) => PackedValues::Floats(floats.narrow(0, start, rows)),
        };
        Self::new(self.format, values, self.columns)
    }

    /// Copies the weight to the host's memory. Backends without the bytes pack the unpacked values again, whose
    /// scales may differ in the last bit.
    pub fn to_host(&self) -> PackedMatrix {
        match &self.values {
            PackedValues::Bytes(bytes) => {
                let data = bytes.to_data();
                let bytes = match data.as_slice::<i32>() {
                    Ok(words) => {
                        let row_words = bytes.dims()[1].max(1);
                        let row_bytes = self.format.row_bytes(self.columns);
                        let row = |words: &[i32]| {
                            let bytes = words.iter().flat_map(|word| word.to_le_bytes());
                            bytes.take(row_bytes).collect::<Vec<u8>>()
                        };
                        words.chunks(row_words).flat_map(row).collect()
                    }
                    Err(_) => data.iter::<u8>().collect(),
                };
                PackedMatrix {
                    format: self.format,
                    bytes,
                    shape: self.shape(),
                }
            }
            PackedValues::Floats(floats) => {
                let values: Vec<f32> = floats.to_data().iter::<f32>().collect();
                let [rows, columns] = self.shape();
                pack(self.format, Matrix::row_major(&values, rows, columns))
            }
        }
    }

    /// The weight in f32, `[out, in]`.
    pub(crate) fn unpacked(&self) -> Tensor<B, 2> {
        match &self.values {
            PackedValues::Floats(floats) => floats.clone(),
            PackedValues::Bytes(_) => unpacked(&self.to_host(), &self.device()),
        }
    }

    /// The bytes as the backend's primitive, if it keeps them.
    #[cfg(any(feature = "flex", feature = "gpu"))]
    pub(crate) fn bytes(&self) -> Option<IntTensor<B>> {
        match &self.values {
            PackedValues::Bytes(bytes) => Some(bytes.clone().into_primitive()),
            PackedValues::Floats(_) => None,
        }
    }
}

/// Copies the unpacked values of a matrix to a device.
pub(crate) fn unpacked<B: Backend>(matrix: &PackedMatrix, device: &Device<B>) -> Tensor<B, 2> {
    let [rows, columns] = matrix.shape();
    let mut values = vec![0.0; rows * columns];
    packed::unpack(matrix.view(), &mut values);
    Tensor::from_data(TensorData::new(values, [rows, columns]), device)
}
