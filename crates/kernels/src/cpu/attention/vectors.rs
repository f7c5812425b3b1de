//! The keys and values that attention reads: f32 vectors in place, or packed vectors, which are unpacked block by block.

use std::ops::Range;

use super::heads::{HeadStrides, Heads};
use super::scratch;
use crate::PackedFormat;
use crate::cpu::blocks::{pack_row, unpack_row, unpack_rows};
use crate::cpu::parallel::{Shared, for_each, rows_per_task};

/// Keys or values `[batch, heads, tokens, head_dim]`.
pub trait TokenVectors: Copy + Send + Sync {
    /// The number of tokens that decoding reads at a time, a multiple of 4. Unpacked vectors of so many tokens stay in the
    /// first-level cache.
    const BLOCK: usize;

    /// The shape, `[batch, heads, tokens, head_dim]`.
    fn dims(&self) -> [usize; 4];

    /// The number of floats that [`Self::rows`] needs for `tokens` tokens.
    fn scratch_len(&self, tokens: usize) -> usize;

    /// The vectors of a range of tokens, and the stride between them. They are unpacked to `scratch` unless they are
    /// read in place.
    fn rows<'m>(
        &self,
        head: [usize; 2],
        tokens: Range<usize>,
        scratch: &'m mut [f32],
    ) -> (&'m [f32], usize)
    where
        Self: 'm;

    /// Copies the vectors of a range of tokens to rows of `width`, padded with zeros.
    fn copy_to(&self, head: [usize; 2], tokens: Range<usize>, width: usize, out: &mut [f32]);
}

impl TokenVectors for Heads<'_> {
    // All keys of a task, since nothing is unpacked.
    const BLOCK: usize = crate::KEY_BLOCK;

    fn dims(&self) -> [usize; 4] {
        Heads::dims(self)
    }

    fn scratch_len(&self, _: usize) -> usize {
        0
    }

    #[inline(always)]
    fn rows<'m>(
        &self,
        [b, h]: [usize; 2],
        tokens: Range<usize>,
        _: &'m mut [f32],
    ) -> (&'m [f32], usize)
    where
        Self: 'm,
    {
        (self.tokens(b, h, tokens), self.token_stride())
    }

    #[inline(always)]
    fn copy_to(&self, [b, h]: [usize; 2], tokens: Range<usize>, width: usize, out: &mut [f32]) {
        scratch::copy(self, [b, h, tokens.start], tokens.len(), width, out);
    }
}

/// A read-only view `[batch, heads, tokens, head_dim]` of packed vectors, each a row of a [`PackedFormat`].
#[derive(Clone, Copy, Debug)]
pub struct PackedHeads<'a> {
    format: PackedFormat,
    bytes: &'a [u8],
    /// The number of bytes between vectors.
    strides: HeadStrides,
    dims: [usize; 4],
}

impl<'a> PackedHeads<'a> {
    /// Creates a view of the beginning of `bytes`, with strides in bytes.
    ///
    /// # Panics
    /// Panics if the last vector is outside `bytes`, or the vectors cannot be packed in the format.
    pub fn new(
        format: PackedFormat,
        bytes: &'a [u8],
        strides: HeadStrides,
        dims: [usize; 4],
    ) -> Self {
        let [batch, heads, tokens, head_dim] = dims;
        let row = format.row_bytes(head_dim);
        assert!(
            head_dim.is_multiple_of(format.block_len())
                && strides.extent([batch, heads, tokens, row]) <= bytes.len(),
            "the packed heads leave their memory"
        );
        Self {
            format,
            bytes,
            strides,
            dims,
        }
    }

    /// Unpacks the vectors of a range of tokens to rows of `width`, whose other elements stay unchanged.
    #[inline(always)]
    fn unpack(&self, [b, h]: [usize; 2], tokens: Range<usize>, width: usize, out: &mut [f32]) {
        if tokens.is_empty() {
            return;
        }
        let head_dim = self.dims[3];
        let row = self.format.row_bytes(head_dim);
        let start = self.strides.offset([b, h, tokens.start]);
        let end = self.strides.offset([b, h, tokens.end - 1]) + row;
        let out = &mut out[..tokens.len() * width];
        let bytes = &self.bytes[start..end];
        unpack_rows(
            self.format,
            head_dim,
            (bytes, self.strides.token),
            (out, width),
        );
    }
}

impl TokenVectors for PackedHeads<'_> {
    const BLOCK: usize = 32;

    fn dims(&self) -> [usize; 4] {
        self.dims
    }

    fn scratch_len(&self, tokens: usize) -> usize {
        tokens * self.dims[3]
    }

    #[inline(always)]
    fn rows<'m>(
        &self,
        head: [usize; 2],
        tokens: Range<usize>,
        scratch: &'m mut [f32],
    ) -> (&'m [f32], usize)
    where
        Self: 'm,
    {
        let head_dim = self.dims[3];
        let rows = &mut scratch[..tokens.len() * head_dim];
        self.unpack(head, tokens, head_dim, rows);
        (rows, head_dim)
    }

    #[inline(always)]
    fn copy_to(&self, head: [usize; 2], tokens: Range<usize>, width: usize, out: &mut [f32]) {
        let (copied, rest) = out.split_at_mut(tokens.len() * width);
        rest.fill(0.0);
        let head_dim = self.dims[3];
        if head_dim < width {
            for row in copied.chunks_exact_mut(width) {
                row[head_dim..].fill(0.0);
            }
        }
        self.unpack(head, tokens, width, copied);
    }
}

/// Unpacks all vectors to `[batch, heads, tokens, head_dim]`.
///
/// # Panics
/// Panics if `out` has a different size.
pub fn unpack_heads(heads: PackedHeads<'_>, out: &mut [f32]) {
    let [batch, count, tokens, head_dim] = heads.dims;
    assert_eq!(out.len(), batch * count * tokens * head_dim);
    let row = heads.format.row_bytes(head_dim);
    for (at, out) in out.chunks_exact_mut(head_dim.max(1)).enumerate() {
        let at = [at / (count * tokens), at / tokens % count, at % tokens];
        let start = heads.strides.offset(at);
        unpack_row(heads.format, &heads.bytes[start..start + row], out);
    }
}

/// Packs the vectors of `heads` to `out`, row after row in the order `[batch, heads, tokens]`, on all threads.
///
/// # Panics
/// Panics if `out` has a different size, or the vectors cannot be packed in the format.
pub fn pack_heads(format: PackedFormat, heads: Heads<'_>, out: &mut [u8]) {
    let [batch, count, tokens, head_dim] = Heads::dims(&heads);
    let (row, vectors) = (format.row_bytes(head_dim), batch * count * tokens);
    assert!(
        head_dim.is_multiple_of(format.block_len()) && out.len() == vectors * row,
        "the sizes do not fit"
    );
    let per_task = rows_per_task(vectors, head_dim);
    let out = Shared::new(out);
    for_each(vectors.div_ceil(per_task), |task| {
        for at in task * per_task..vectors.min((task + 1) * per_task) {
            // SAFETY: each task has its own rows.
            let out = unsafe { out.part(at * row..(at + 1) * row) };
            let vector = heads.vector([at / (count * tokens), at / tokens % count, at % tokens]);
            pack_row(format, vector, None, out);
        }
    });
}
