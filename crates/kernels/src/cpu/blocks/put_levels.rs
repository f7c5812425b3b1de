//! Writing the levels of blocks whose scales and minimums are stored already: the inverse of [`super::levels`].

use super::{affine, simple, symmetric};
use crate::PackedFormat;

/// The lowest and the highest level that packing writes; `None` if the format has no evenly spaced levels.
///
/// Those of q8_0 are -127 and 127, so that the magnitude of each fits 7 bits.
pub(in crate::cpu) const fn range(format: PackedFormat) -> Option<(u8, u8)> {
    match format {
        PackedFormat::Int8
        | PackedFormat::F16
        | PackedFormat::Bf16
        | PackedFormat::Iq4Nl
        | PackedFormat::Mxfp4 => None,
        PackedFormat::Q8_0 => Some((1, 255)),
        PackedFormat::Q4_0 | PackedFormat::Q4_1 | PackedFormat::Q4K => Some((0, 15)),
        PackedFormat::Q5_0 | PackedFormat::Q5_1 | PackedFormat::Q5K => Some((0, 31)),
        PackedFormat::Q2K => Some((0, 3)),
        PackedFormat::Q3K => Some((0, 7)),
        PackedFormat::Q6K => Some((0, 63)),
    }
}

/// Writes the levels of a row, an element per weight. Formats without a [`range`] stay as they are.
pub(in crate::cpu) fn put_row(format: PackedFormat, q: &[u8], out: &mut [u8]) {
    match format {
        PackedFormat::Int8
        | PackedFormat::F16
        | PackedFormat::Bf16
        | PackedFormat::Iq4Nl
        | PackedFormat::Mxfp4 => {}
        PackedFormat::Q8_0 => put(q, out, |q: &[u8; 32], out: &mut [u8; 34]| {
            for (out, q) in out[2..].iter_mut().zip(q) {
                *out = q ^ 0x80;
            }
        }),
        PackedFormat::Q4_0 => put(q, out, |q, out: &mut [u8; 18]| {
            simple::put_halves(q, &mut out[2..]);
        }),
        PackedFormat::Q4_1 => put(q, out, |q, out: &mut [u8; 20]| {
            simple::put_halves(q, &mut out[4..]);
        }),
        PackedFormat::Q5_0 => put(q, out, |q, out: &mut [u8; 22]| {
            simple::put_five_bits(q, &mut out[2..]);
        }),
        PackedFormat::Q5_1 => put(q, out, |q, out: &mut [u8; 24]| {
            simple::put_five_bits(q, &mut out[4..]);
        }),
        PackedFormat::Q2K => put(q, out, affine::put_q2),
        PackedFormat::Q3K => put(q, out, symmetric::put_q3),
        PackedFormat::Q4K => put(q, out, affine::put_q4),
        PackedFormat::Q5K => put(q, out, affine::put_q5),
        PackedFormat::Q6K => put(q, out, symmetric::put_q6),
    }
}

fn put<const LEN: usize, const BYTES: usize>(
    q: &[u8],
    out: &mut [u8],
    put: impl Fn(&[u8; LEN], &mut [u8; BYTES]),
) {
    let (q, _) = q.as_chunks::<LEN>();
    let (out, _) = out.as_chunks_mut::<BYTES>();
    for (q, out) in q.iter().zip(out) {
        put(q, out);
    }
}
