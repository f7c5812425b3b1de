//! Strided views of the vectors of heads, for separate tensors as well as for queries, keys and values in one
//! fused buffer.

use std::ops::Range;

use super::AttentionShape;
use super::rows::copy_row;
use crate::cpu::parallel::Shared;

/// The number of elements between vectors along each dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadStrides {
    /// The stride between sequences.
    pub batch: usize,
    /// The stride between heads.
    pub head: usize,
    /// The stride between tokens.
    pub token: usize,
}

impl HeadStrides {
    /// The strides of `[batch, heads, tokens, head_dim]` without gaps.
    pub fn contiguous([_, heads, tokens, head_dim]: [usize; 4]) -> Self {
        Self {
            batch: heads * tokens * head_dim,
            head: tokens * head_dim,
            token: head_dim,
        }
    }

    /// The strides of heads in a buffer `[batch, tokens, row]`, where the heads of a token are adjacent.
    pub fn of_rows(tokens: usize, head_dim: usize, row: usize) -> Self {
        Self {
            batch: tokens * row,
            head: head_dim,
            token: row,
        }
    }

    pub(in crate::cpu) fn offset(self, [b, h, t]: [usize; 3]) -> usize {
        b * self.batch + h * self.head + t * self.token
    }

    /// The number of elements from the first to the last, inclusive.
    pub(in crate::cpu) fn extent(self, [batch, heads, tokens, head_dim]: [usize; 4]) -> usize {
        if batch * heads * tokens * head_dim == 0 {
            return 0;
        }
        self.offset([batch - 1, heads - 1, tokens - 1]) + head_dim
    }

    /// Returns true if no two vectors share an element: in order of increasing strides, each stride must exceed
    /// the extent of the previous dimensions.
    pub(in crate::cpu) fn disjoint(self, [batch, heads, tokens, head_dim]: [usize; 4]) -> bool {
        let mut steps = [
            (self.batch, batch),
            (self.head, heads),
            (self.token, tokens),
        ];
        steps.sort_unstable();
        let mut reach = head_dim;
        for (stride, count) in steps {
            if count > 1 {
                if stride < reach {
                    return false;
                }
                reach += stride * (count - 1);
            }
        }
        true
    }
}

/// A read-only view `[batch, heads, tokens, head_dim]`: with the strides, element `(b, h, t, i)` is
/// `data[b · batch + h · head + t · token + i]`.
#[derive(Clone, Copy, Debug)]
pub struct Heads<'a> {
    data: &'a [f32],
    strides: HeadStrides,
    dims: [usize; 4],
}

impl<'a> Heads<'a> {
    /// Creates a view of the beginning of `data`.
    ///
    /// # Panics
    /// Panics if the last element is outside `data`.
    pub fn new(data: &'a [f32], strides: HeadStrides, dims: [usize; 4]) -> Self {
        assert!(
            strides.extent(dims) <= data.len(),
            "the heads leave their memory"
        );
        Self {
            data,
            strides,
            dims,
        }
    }

    /// Views of the queries, keys and values in one buffer `[batch, seq, (heads + 2 kv_heads) · head_dim]`, in
    /// this order.
    ///
    /// # Panics
    /// Panics if `q_len` is not `k_len`, or `data` has a different size.
    pub fn split_fused(data: &'a [f32], shape: &AttentionShape) -> (Self, Self, Self) {
        let (strides, [q, k, v]) = fused(data.len(), shape);
        (
            Self::new(data.get(q..).unwrap_or_default(), strides, shape.q_dims()),
            Self::new(data.get(k..).unwrap_or_default(), strides, shape.k_dims()),
            Self::new(data.get(v..).unwrap_or_default(), strides, shape.k_dims()),
        )
    }

    /// The shape, `[batch, heads, tokens, head_dim]`.
    pub fn dims(&self) -> [usize; 4] {
        self.dims
    }

    /// The stride between tokens.
    #[inline(always)]
    pub(super) fn token_stride(&self) -> usize {
        self.strides.token
    }

    /// The vector of a token.
    #[inline(always)]
    pub(super) fn vector(&self, at: [usize; 3]) -> &'a [f32] {
        let start = self.strides.offset(at);
        &self.data[start..start + self.dims[3]]
    }

    /// The memory from the first vector of a range of tokens to the end of the last one.
    #[inline(always)]
    pub(super) fn tokens(&self, b: usize, h: usize, tokens: Range<usize>) -> &'a [f32] {
        if tokens.is_empty() {
            return &[];
        }
        let start = self.strides.offset([b, h, tokens.start]);
        let end = self.strides.offset([b, h, tokens.end - 1]) + self.dims[3];
        &self.data[start..end]
    }
}

/// A writable view `[batch, heads, tokens, head_dim]` that several threads can use at once.
#[derive(Debug)]
pub struct HeadsMut<'a> {
    data: Shared<'a, f32>,
    start: usize,
    strides: HeadStrides,
    dims: [usize; 4],
}

impl<'a> HeadsMut<'a> {
    /// Creates a view of the beginning of `data`.
    ///
    /// # Panics
    /// Panics if the last element is outside `data`, or if the strides do not prove that the vectors are
    /// disjoint.
    pub fn new(data: &'a mut [f32], strides: HeadStrides, dims: [usize; 4]) -> Self {
        // SAFETY: `data` is borrowed exclusively.
        unsafe { Self::from_shared(Shared::new(data), 0, strides, dims) }
    }

    /// Creates a view of memory of which others may hold other parts. The first vector is at `start`.
    ///
    /// # Safety
    /// Nothing else reads or writes the elements of the vectors while the view is alive.
    ///
    /// # Panics
    /// See [`HeadsMut::new`].
    pub unsafe fn from_shared(
        data: Shared<'a, f32>,
        start: usize,
        strides: HeadStrides,
        dims: [usize; 4],
    ) -> Self {
        let extent = strides.extent(dims);
        assert!(
            extent == 0 || start + extent <= data.len(),
            "the heads leave their memory"
        );
        assert!(
            extent == 0 || strides.disjoint(dims),
            "vectors of heads to write overlap"
        );
        Self {
            data,
            start,
            strides,
            dims,
        }
    }

    /// Views of the gradients of queries, keys and values in one buffer
    /// `[batch, seq, (heads + 2 kv_heads) · head_dim]`.
    ///
    /// # Panics
    /// Panics if `q_len` is not `k_len`, or `data` has a different size.
    pub fn split_fused(data: &'a mut [f32], shape: &AttentionShape) -> (Self, Self, Self) {
        let (strides, [q, k, v]) = fused(data.len(), shape);
        let data = Shared::new(data);
        // SAFETY: the views are disjoint, since each row of the buffer consists of their three parts in sequence.
        unsafe {
            (
                Self::from_shared(data, q, strides, shape.q_dims()),
                Self::from_shared(data, k, strides, shape.k_dims()),
                Self::from_shared(data, v, strides, shape.k_dims()),
            )
        }
    }

    /// The shape, `[batch, heads, tokens, head_dim]`.
    pub fn dims(&self) -> [usize; 4] {
        self.dims
    }

    /// Sets all vectors to 0.
    pub(super) fn clear(&self) {
        let [batch, heads, tokens, _] = self.dims;
        for at in 0..batch * heads * tokens {
            let at = [at / (heads * tokens), at / tokens % heads, at % tokens];
            // SAFETY: no task is running, and no other view has the vector, as `from_shared` requires.
            unsafe { self.vector(at) }.fill(0.0);
        }
    }

    /// The address of the first of `count` vectors, starting at token `from`, and the stride between them.
    ///
    /// # Panics
    /// Panics if there are fewer tokens.
    #[inline(always)]
    pub(super) fn rows(&self, [b, h, from]: [usize; 3], count: usize) -> (*mut f32, usize) {
        let [batch, heads, tokens, _] = self.dims;
        assert!(count > 0 && b < batch && h < heads && from + count <= tokens);
        let first = self.data.at(self.start + self.strides.offset([b, h, from]));
        (first, self.strides.token)
    }

    /// The vector of a token.
    ///
    /// # Safety
    /// Nothing else accesses this vector while the slice is alive.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn vector(&self, at: [usize; 3]) -> &mut [f32] {
        let start = self.start + self.strides.offset(at);
        // SAFETY: no other view has the vector, as `from_shared` requires, and no other task, as the caller guarantees.
        unsafe { self.data.part(start..start + self.dims[3]) }
    }
}

impl HeadsMut<'_> {
    /// Copies the first `head_dim` elements of each row of `[count, width]` to the vectors of `count` tokens from
    /// `from` on.
    ///
    /// # Safety
    /// Nothing else accesses these vectors during the call.
    ///
    /// # Panics
    /// Panics if there are fewer tokens or rows, or if the rows are shorter than the vectors.
    #[inline(always)]
    pub(super) unsafe fn write(
        &self,
        [b, h, from]: [usize; 3],
        count: usize,
        rows: &[f32],
        width: usize,
    ) {
        let head_dim = self.dims[3];
        assert!(head_dim <= width && count * width <= rows.len());
        if count * head_dim == 0 {
            return;
        }
        let (first, stride) = self.rows([b, h, from], count);
        for (i, row) in rows.chunks_exact(width).take(count).enumerate() {
            let to = first.wrapping_add(i * stride);
            // SAFETY: a vector of the view, which nothing else accesses, as `from_shared` and the caller
            // guarantee.
            let to = unsafe { std::slice::from_raw_parts_mut(to, head_dim) };
            copy_row(row, to);
        }
    }
}

/// The strides of a fused buffer of `len` elements, and the offsets of queries, keys and values.
fn fused(len: usize, shape: &AttentionShape) -> (HeadStrides, [usize; 3]) {
    let AttentionShape {
        batch,
        heads,
        kv_heads,
        q_len,
        k_len,
        head_dim,
    } = *shape;
    let row = (heads + 2 * kv_heads) * head_dim;
    assert!(
        q_len == k_len && len == batch * q_len * row,
        "the fused buffer is of another size"
    );
    let strides = HeadStrides::of_rows(q_len, head_dim, row);
    (
        strides,
        [0, heads * head_dim, (heads + kv_heads) * head_dim],
    )
}
