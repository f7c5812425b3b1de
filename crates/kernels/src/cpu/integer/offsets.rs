//! Sums over x for 8-bit levels that are multiplied as signed numbers.
//!
//! With `q = w + 128`, `Σ q p = Σ w p + 128 Σ p`. The second sum depends only on x.

use super::layout::{FOURS, LEN, has_eight_bits};
use super::{Rounded, SUB};
use crate::PackedFormat;

/// The offset of 8-bit levels.
const OFFSET: i32 = 128;

/// Sums over the elements of a chunk of x, times the offset of 8-bit levels.
#[derive(Clone)]
#[repr(align(64))]
pub(super) struct Offsets {
    /// Sums of four elements.
    pub(super) fours: [i32; LEN / 4],
    /// Sums of the elements of a sub-block.
    pub(super) subs: [i32; LEN / SUB],
}

/// Computes the offsets of rows of x, whose elements are in the order of the levels, for a format.
pub(super) fn prepare(x: &mut [Rounded], format: PackedFormat) {
    if !has_eight_bits(format as u8) {
        return;
    }
    for x in x {
        let offsets = x.chunks.iter().map(|chunk| {
            let (fours, _) = chunk.values.as_flattened().as_chunks::<4>();
            let mut offsets = Offsets {
                fours: [0; LEN / 4],
                subs: [0; LEN / SUB],
            };
            for (at, four) in fours.iter().enumerate() {
                let sum: i32 = four.iter().map(|p| i32::from(*p)).sum();
                offsets.fours[at] = OFFSET * sum;
                offsets.subs[at / FOURS] += OFFSET * sum;
            }
            offsets
        });
        x.offsets = offsets.collect();
    }
}
