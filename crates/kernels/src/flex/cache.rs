//! Key-value caches: writes, and packed vectors.

use burn::tensor::{Bytes, DType, Tensor};
use burn_flex::{Flex, FlexTensor, Layout};

use super::attention::{heads, strides};
use super::buffer::{dense, element_range, elements_mut, filled, is_f32};
use crate::cpu::attention::{HeadStrides, PackedHeads, pack_heads, unpack_heads};
use crate::packed_tokens::TokenValues;
use crate::{PackedFormat, PackedTokens, reference};

/// See [`crate::Backend::write_tokens`]. Writes in place if the cache is not shared. Burn's `slice_assign` would
/// copy the whole cache.
pub(super) fn write_tokens(held: FlexTensor, new: FlexTensor, start: usize) -> FlexTensor {
    let mut held = dense(held);
    let (new, from_strides) = strides(new);
    let capacity = held.layout().shape()[2];
    let sizes = [0, 1, 2, 3].map(|dim| new.layout().shape()[dim]);
    let from = &new.storage::<f32>()[new.layout().start_offset()..];
    write_rows(
        elements_mut(&mut held),
        capacity,
        from,
        from_strides,
        sizes,
        start,
    );
    held
}

/// See [`crate::Backend::write_packed_tokens`]. Writes in place, as [`write_tokens`] does.
pub(super) fn write_packed_tokens(
    held: PackedTokens<Flex>,
    new: PackedTokens<Flex>,
    start: usize,
) -> PackedTokens<Flex> {
    let (format, head_dim) = (held.format(), held.dims()[3]);
    let (held, new) = match (held.values, new.values) {
        (TokenValues::Bytes(held), TokenValues::Bytes(new)) => (held, new),
        (held, new) => {
            let [held, new] = [held, new].map(|of| PackedTokens::new(of, format, head_dim));
            return reference::write_packed_tokens(held, new, start);
        }
    };
    let mut held = dense(held.into_primitive());
    let (new, from_strides) = strides(new.into_primitive());
    let capacity = held.layout().shape()[2];
    let sizes = [0, 1, 2, 3].map(|dim| new.layout().shape()[dim]);
    let from = &new.storage::<u8>()[new.layout().start_offset()..];
    let range = element_range(&held);
    let to = &mut held.storage_mut::<u8>()[range];
    write_rows(to, capacity, from, from_strides, sizes, start);
    of_bytes(held, format, head_dim)
}

/// Writes vectors `[batch, heads, seq, width]` after the first `start` tokens of `to`, `[batch, heads, capacity, width]`.
fn write_rows<T: Copy>(
    to: &mut [T],
    capacity: usize,
    from: &[T],
    from_strides: HeadStrides,
    [batch, heads, seq, width]: [usize; 4],
    start: usize,
) {
    for (b, h) in (0..batch).flat_map(|b| (0..heads).map(move |h| (b, h))) {
        let first = ((b * heads + h) * capacity + start) * width;
        let rows = to[first..first + seq * width].chunks_exact_mut(width.max(1));
        for (token, row) in rows.enumerate() {
            let at = b * from_strides.batch + h * from_strides.head + token * from_strides.token;
            row.copy_from_slice(&from[at..at + width]);
        }
    }
}

/// See [`crate::Backend::empty_tokens`].
pub(super) fn empty_tokens(
    [batch, heads, tokens, head_dim]: [usize; 4],
    format: PackedFormat,
) -> PackedTokens<Flex> {
    let shape = [batch, heads, tokens, format.row_bytes(head_dim)];
    of_bytes(byte_tensor(zero_bytes(shape), shape), format, head_dim)
}

/// See [`crate::Backend::pack_tokens`].
pub(super) fn pack_tokens(x: FlexTensor, format: PackedFormat) -> PackedTokens<Flex> {
    if !is_f32(&[&x]) {
        return reference::pack_tokens::<Flex>(x, format);
    }
    let x = strides(x).0;
    let view = heads(&x);
    let [batch, count, tokens, head_dim] = view.dims();
    let shape = [batch, count, tokens, format.row_bytes(head_dim)];
    let mut bytes = zero_bytes(shape);
    pack_heads(format, view, &mut bytes);
    of_bytes(byte_tensor(bytes, shape), format, head_dim)
}

/// See [`crate::Backend::unpack_tokens`].
pub(super) fn unpack_tokens(tokens: PackedTokens<Flex>) -> FlexTensor {
    let (format, dims) = (tokens.format(), tokens.dims());
    match tokens.clone().into_bytes() {
        Some(bytes) => {
            let bytes = strides(bytes).0;
            filled(dims, |out| {
                unpack_heads(packed_heads(&bytes, format, dims), out)
            })
        }
        None => reference::unpack_tokens::<Flex>(tokens),
    }
}

/// A view of packed tokens returned by [`strides`].
pub(super) fn packed_heads(
    bytes: &FlexTensor,
    format: PackedFormat,
    dims: [usize; 4],
) -> PackedHeads<'_> {
    let layout = bytes.layout();
    let [batch, head, token] = [0, 1, 2].map(|dim| layout.strides()[dim].unsigned_abs());
    PackedHeads::new(
        format,
        &bytes.storage::<u8>()[layout.start_offset()..],
        HeadStrides { batch, head, token },
        dims,
    )
}

/// Bytes of zeros, whose memory is zero already.
fn zero_bytes(shape: [usize; 4]) -> Vec<u8> {
    vec![0; shape.iter().product()]
}

fn byte_tensor(bytes: Vec<u8>, shape: [usize; 4]) -> FlexTensor {
    let layout = Layout::contiguous(shape.into());
    FlexTensor::new(Bytes::from_elems(bytes), layout, DType::U8)
}

fn of_bytes(bytes: FlexTensor, format: PackedFormat, head_dim: usize) -> PackedTokens<Flex> {
    let bytes = TokenValues::Bytes(Tensor::from_primitive(bytes));
    PackedTokens::new(bytes, format, head_dim)
}
