//! Packed keys or values on a device.

use burn::tensor::backend::Backend;
#[cfg(feature = "flex")]
use burn::tensor::ops::IntTensor;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};

use crate::PackedFormat;

/// Keys or values of a cache, `[batch, kv_heads, tokens, head_dim]`. Each vector is packed as a row of a
/// [`PackedFormat`], so `head_dim` is a multiple of the format's block length.
///
/// The `flex` backend keeps the bytes. The other backends have no kernels for them, and hold the rounded values in
/// f32; [`crate::Backend::packs_tokens`] distinguishes them.
///
/// Created by [`crate::ops::empty_tokens`] and [`crate::ops::pack_tokens`].
#[derive(Clone, Debug)]
pub struct PackedTokens<B: Backend> {
    pub(crate) values: TokenValues<B>,
    format: PackedFormat,
    head_dim: usize,
}

/// The values of packed tokens, as a backend stores them.
#[derive(Clone, Debug)]
pub(crate) enum TokenValues<B: Backend> {
    /// `[batch, kv_heads, tokens, row_bytes]`, unsigned bytes.
    #[cfg_attr(not(feature = "flex"), allow(dead_code))]
    Bytes(Tensor<B, 4, Int>),
    /// The unpacked values, `[batch, kv_heads, tokens, head_dim]`.
    Floats(Tensor<B, 4>),
}

impl<B: Backend> PackedTokens<B> {
    pub(crate) fn new(values: TokenValues<B>, format: PackedFormat, head_dim: usize) -> Self {
        Self {
            values,
            format,
            head_dim,
        }
    }

    /// The storage format.
    pub fn format(&self) -> PackedFormat {
        self.format
    }

    /// The shape of the unpacked vectors, `[batch, kv_heads, tokens, head_dim]`.
    pub fn dims(&self) -> [usize; 4] {
        let [batch, heads, tokens, _] = match &self.values {
            TokenValues::Bytes(bytes) => bytes.dims(),
            TokenValues::Floats(floats) => floats.dims(),
        };
        [batch, heads, tokens, self.head_dim]
    }

    /// The device of the vectors.
    pub fn device(&self) -> Device<B> {
        match &self.values {
            TokenValues::Bytes(bytes) => bytes.device(),
            TokenValues::Floats(floats) => floats.device(),
        }
    }

    /// The size of the vectors in memory, in bytes.
    pub fn bytes(&self) -> usize {
        match &self.values {
            TokenValues::Bytes(bytes) => bytes.dims().iter().product(),
            TokenValues::Floats(floats) => floats.shape().num_elements() * floats.dtype().size(),
        }
    }

    /// Returns tokens `start..start + count`, without a copy on backends that narrow without one.
    pub fn narrow(self, start: usize, count: usize) -> Self {
        self.map(
            |bytes| bytes.narrow(2, start, count),
            |floats| floats.narrow(2, start, count),
        )
    }

    /// Returns the sequences with the given numbers, `[selected]`, in this order.
    pub fn select(self, sequences: &Tensor<B, 1, Int>) -> Self {
        self.map(
            |bytes| bytes.select(0, sequences.clone()),
            |floats| floats.select(0, sequences.clone()),
        )
    }

    /// Returns the tokens followed by those of `other`, which has the same format and head dimension.
    pub fn followed_by(self, other: Self) -> Self {
        let (format, head_dim) = (self.format, self.head_dim);
        let values = match (self.values, other.values) {
            (TokenValues::Bytes(first), TokenValues::Bytes(second)) => {
                TokenValues::Bytes(Tensor::cat(vec![first, second], 2))
            }
            (TokenValues::Floats(first), TokenValues::Floats(second)) => {
                TokenValues::Floats(Tensor::cat(vec![first, second], 2))
            }
            // Not reached: a backend stores all packed tokens in the same way.
            (first, _) => first,
        };
        Self::new(values, format, head_dim)
    }

    /// The vectors as they are stored.
    pub fn into_data(self) -> TensorData {
        match self.values {
            TokenValues::Bytes(bytes) => bytes.into_data(),
            TokenValues::Floats(floats) => floats.into_data(),
        }
    }

    /// Vectors of the same format, batch, heads and dimension from the data of [`PackedTokens::into_data`]. `None` if it is that
    /// of others.
    pub fn like(&self, data: TensorData) -> Option<Self> {
        let values = match &self.values {
            TokenValues::Bytes(bytes) => {
                let is_like = has_rows(&data, DType::U8, bytes.dims());
                let options = (&bytes.device(), DType::U8);
                TokenValues::Bytes(is_like.then(|| Tensor::from_data(data, options))?)
            }
            TokenValues::Floats(floats) => {
                let is_like = has_rows(&data, floats.dtype(), floats.dims());
                TokenValues::Floats(is_like.then(|| Tensor::from_data(data, &floats.device()))?)
            }
        };
        Some(Self::new(values, self.format, self.head_dim))
    }

    /// The bytes as the backend's primitive, if it keeps them.
    #[cfg(feature = "flex")]
    pub(crate) fn into_bytes(self) -> Option<IntTensor<B>> {
        match self.values {
            TokenValues::Bytes(bytes) => Some(bytes.into_primitive()),
            TokenValues::Floats(_) => None,
        }
    }

    fn map(
        self,
        of_bytes: impl FnOnce(Tensor<B, 4, Int>) -> Tensor<B, 4, Int>,
        of_floats: impl FnOnce(Tensor<B, 4>) -> Tensor<B, 4>,
    ) -> Self {
        let values = match self.values {
            TokenValues::Bytes(bytes) => TokenValues::Bytes(of_bytes(bytes)),
            TokenValues::Floats(floats) => TokenValues::Floats(of_floats(floats)),
        };
        Self::new(values, self.format, self.head_dim)
    }
}

/// Returns true if `data` has elements of `dtype` for tokens `[batch, kv_heads, _, width]` of a cache `[batch, kv_heads, tokens,
/// width]`: at most `tokens`.
pub fn has_rows(data: &TensorData, dtype: DType, dims: [usize; 4]) -> bool {
    let [batch, heads, tokens, width] = dims;
    match *data.shape.as_slice() {
        [b, h, count, w] => {
            data.dtype == dtype && [b, h, w] == [batch, heads, width] && count <= tokens
        }
        _ => false,
    }
}
