//! The int8 format, which takes a quarter of the memory of f32, and a quarter of the time to read.
//!
//! Quantization is symmetric with one scale per output: `w[j, l] ≈ scale[j] q[j, l]` with `|q| ≤ 127`. The error
//! is at most half a scale. The other operand and the sums stay in f32. A row is its scale, an f32 in
//! little-endian order, and the values `q[j, ·]`.

use super::few_rows::Values;
use super::packed::{INT8_SCALE, split_int8};

/// Quantizes a row: `q[l] = round(w[l] / scale)`, `scale = max |w| / 127`. A row with non-finite weights gets a
/// non-finite scale.
pub(super) fn pack_row(w: &[f32], row: &mut [u8]) {
    // NaN is sticky.
    let larger = |largest: f32, x: f32| match x > largest || x.is_nan() {
        true => x,
        false => largest,
    };
    let largest = w.iter().fold(0.0, |largest, x| larger(largest, x.abs()));
    let (scale, q) = row.split_at_mut(INT8_SCALE);
    scale.copy_from_slice(&(largest / 127.0).to_le_bytes());
    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    for (q, w) in q.iter_mut().zip(w) {
        *q = ((w * inverse).round().clamp(-127.0, 127.0) as i8).cast_unsigned();
    }
}

/// `w[l] = q[l] · scale`.
#[inline(always)]
pub(super) fn unpack_row(row: &[u8], w: &mut [f32]) {
    let (scale, q) = split_int8(row);
    for (w, q) in w.iter_mut().zip(q) {
        *w = Int8::value(*q) * scale;
    }
}

/// Values in int8.
pub(super) struct Int8;

impl Values for Int8 {
    type Stored = u8;

    #[inline(always)]
    fn split(row: &[u8]) -> (f32, &[u8]) {
        split_int8(row)
    }

    #[inline(always)]
    fn value(stored: u8) -> f32 {
        f32::from(stored.cast_signed())
    }
}
