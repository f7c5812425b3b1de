//! Key-value caches: writes, and packed vectors.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Device, Tensor};

use super::{primitive, typed};
use crate::cpu::matrix::Matrix;
use crate::cpu::packed::{PackedMatrix, pack};
use crate::packed_tokens::TokenValues;
use crate::packed_weight::unpacked;
use crate::{PackedFormat, PackedTokens};

/// See [`crate::Backend::write_tokens`].
pub fn write_tokens<B: Backend>(
    held: FloatTensor<B>,
    new: FloatTensor<B>,
    start: usize,
) -> FloatTensor<B> {
    let new = typed::<B, 4>(new);
    let [batch, heads, seq, width] = new.dims();
    let ranges = [0..batch, 0..heads, start..start + seq, 0..width];
    primitive(typed::<B, 4>(held).slice_assign(ranges, new))
}

/// See [`crate::Backend::empty_tokens`].
pub fn empty_tokens<B: Backend>(
    shape: [usize; 4],
    format: PackedFormat,
    device: &Device<B>,
) -> PackedTokens<B> {
    let floats = TokenValues::Floats(Tensor::zeros(shape, device));
    PackedTokens::new(floats, format, shape[3])
}

/// See [`crate::Backend::pack_tokens`]: the host packs and unpacks the vectors, and the device holds the rounded values
/// in f32.
pub fn pack_tokens<B: Backend>(x: FloatTensor<B>, format: PackedFormat) -> PackedTokens<B> {
    let x = typed::<B, 4>(x);
    let (dims, device) = (x.dims(), x.device());
    let [batch, heads, tokens, head_dim] = dims;
    let values: Vec<f32> = x.into_data().iter::<f32>().collect();
    let rows = Matrix::row_major(&values, batch * heads * tokens, head_dim);
    let rounded = unpacked(&pack(format, rows), &device).reshape(dims);
    PackedTokens::new(TokenValues::Floats(rounded), format, head_dim)
}

/// See [`crate::Backend::unpack_tokens`].
pub fn unpack_tokens<B: Backend>(tokens: PackedTokens<B>) -> FloatTensor<B> {
    let dims = tokens.dims();
    let [batch, heads, count, head_dim] = dims;
    let format = tokens.format();
    primitive(match tokens.values {
        TokenValues::Floats(floats) => floats,
        TokenValues::Bytes(bytes) => {
            let device = bytes.device();
            let matrix = PackedMatrix {
                format,
                bytes: bytes.into_data().iter::<u8>().collect(),
                shape: [batch * heads * count, head_dim],
            };
            unpacked(&matrix, &device).reshape(dims)
        }
    })
}

/// See [`crate::Backend::write_packed_tokens`].
pub fn write_packed_tokens<B: Backend>(
    held: PackedTokens<B>,
    new: PackedTokens<B>,
    start: usize,
) -> PackedTokens<B> {
    let (format, head_dim) = (held.format(), held.dims()[3]);
    let [batch, heads, seq, _] = new.dims();
    let ranges = |width| [0..batch, 0..heads, start..start + seq, 0..width];
    let values = match (held.values, new.values) {
        (TokenValues::Bytes(held), TokenValues::Bytes(new)) => {
            let ranges = ranges(new.dims()[3]);
            TokenValues::Bytes(held.slice_assign(ranges, new))
        }
        (TokenValues::Floats(held), TokenValues::Floats(new)) => {
            TokenValues::Floats(held.slice_assign(ranges(head_dim), new))
        }
        // Not reached: a backend stores all packed tokens in the same way.
        (held, _) => held,
    };
    PackedTokens::new(values, format, head_dim)
}
