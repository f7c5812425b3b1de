//! Writes to key-value caches.

use burn_flex::FlexTensor;

use super::attention::strides;
use super::buffer::{dense, elements_mut};

/// See [`crate::Backend::write_tokens`]. Writes in place if the cache is not shared. Burn's `slice_assign` would
/// copy the whole cache.
pub(super) fn write_tokens(held: FlexTensor, new: FlexTensor, start: usize) -> FlexTensor {
    let mut held = dense(held);
    let (new, from_strides) = strides(new);
    let [batch, heads, seq, width] = [0, 1, 2, 3].map(|dim| new.layout().shape()[dim]);
    let capacity = held.layout().shape()[2];
    let from = &new.storage::<f32>()[new.layout().start_offset()..];
    let all = elements_mut(&mut held);
    for (b, h) in (0..batch).flat_map(|b| (0..heads).map(move |h| (b, h))) {
        let to = ((b * heads + h) * capacity + start) * width;
        let rows = all[to..to + seq * width].chunks_exact_mut(width.max(1));
        for (token, row) in rows.enumerate() {
            let at = b * from_strides.batch + h * from_strides.head + token * from_strides.token;
            row.copy_from_slice(&from[at..at + width]);
        }
    }
    held
}
