//! Writes to key-value caches.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use super::{primitive, typed};

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
