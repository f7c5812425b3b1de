//! Blocks of 32 weights `d v[q]` with 4-bit floating-point numbers `v` and a power of two `d`: MXFP4 of the Open Compute
//! Project's Microscaling formats.
//!
//! Layout: the exponent of `d` in a byte (E8M0), then 16 bytes of 4-bit codes (E2M1) as in [`super::simple`]. As in ggml,
//! the values are twice the numbers of the codes, and so integers, and `d` is half the scale: `2^(e - 128)`.
//!
//! The exponent 255 is NaN, as the specification defines it. ggml unpacks it as `2^127`, but packs no finite weights with it.

use super::levels::Subs;
use super::simple::{get_halves, put_halves};

/// Weights per block.
const LEN: usize = 32;
/// The values that the codes 0 to 7 select. Codes from 8 on select their negatives.
const MAGNITUDES: [u8; 8] = [0, 1, 2, 3, 4, 6, 8, 12];
/// The number that is added to a value, so that it is a level.
pub const OFFSET: u8 = 12;
/// The exponent of a block with a weight that is not finite.
pub const NAN: u8 = 255;

/// The values of the codes with [`OFFSET`] added.
pub const LEVELS: [u8; 16] = {
    let (mut levels, mut at) = ([0; 16], 0);
    while at < 8 {
        levels[at] = OFFSET + MAGNITUDES[at];
        levels[at + 8] = OFFSET - MAGNITUDES[at];
        at += 1;
    }
    levels
};

#[inline(always)]
pub(super) fn levels(block: &[u8; 17], q: &mut [u8; LEN], subs: &mut Subs<'_>) {
    get_halves(&block[1..], q);
    for q in q {
        *q = LEVELS[usize::from(*q & 15)];
    }
    subs.scales.fill(scale(block[0]));
    subs.minimums.fill(0.0);
}

/// The scale with this exponent. The scales of 0 and 1 are subnormal.
#[inline(always)]
fn scale(exponent: u8) -> f32 {
    let exponent = u32::from(exponent);
    match exponent {
        0 | 1 => f32::from_bits((exponent + 1) << 21),
        2..=254 => f32::from_bits((exponent - 1) << 23),
        _ => f32::NAN,
    }
}

/// Packs a block. Its largest magnitude has the exponent of the largest value, so that the values are not beyond it, but
/// some weights may be: they become the largest value.
pub(super) fn pack(w: &[f32; LEN], out: &mut [u8; 17]) {
    let largest = w.iter().fold(0.0f32, |largest, w| largest.max(w.abs()));
    out[0] = exponent(largest);
    let d = scale(out[0]);
    put_halves(&w.map(|w| nearest(w, d)), &mut out[1..]);
}

/// The exponent of the scale of a block with this largest magnitude. The conversion limits it to 0, for zeros and the
/// smallest magnitudes.
fn exponent(largest: f32) -> u8 {
    // The logarithm of the largest number below a power of two may be rounded to an integer, as it is in ggml.
    (largest.log2().floor() - 2.0 + 127.0) as u8
}

/// The code of the value nearest to a weight; in the middle between two, that of the smaller magnitude.
fn nearest(w: f32, d: f32) -> u8 {
    let magnitude = w.abs();
    let (mut code, mut least) = (0, magnitude);
    for (at, value) in (0..8).zip(MAGNITUDES) {
        let error = (f32::from(value) * d - magnitude).abs();
        if error < least {
            (code, least) = (at, error);
        }
    }
    // There is no negative zero.
    let is_negative = w < 0.0 && code > 0;
    code | u8::from(is_negative) << 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_powers_of_two() {
        for e in 0..NAN {
            let expected = 2f64.powi(i32::from(e) - 128);
            assert_eq!(f64::from(scale(e)), expected, "{e}");
        }
        assert!(scale(NAN).is_nan());
    }

    /// ggml converts the negative exponents of the smallest magnitudes to bytes, which C does not define.
    #[test]
    fn smallest_magnitudes_have_the_smallest_scale() {
        for largest in [0.0, f32::from_bits(1), 2f32.powi(-126), 2f32.powi(-125)] {
            let mut block = [0; 17];
            pack(&[largest; LEN], &mut block);
            assert_eq!(block[0], 0, "{largest:e}");
            let (mut q, mut scales, mut minimums) = ([0; LEN], [0.0; 2], [0.0; 2]);
            let mut subs = Subs {
                scales: &mut scales,
                minimums: &mut minimums,
            };
            levels(&block, &mut q, &mut subs);
            let found = scales[0] * (f32::from(q[0]) - f32::from(OFFSET));
            assert!((found - largest).abs() <= scale(0) / 2.0, "{largest:e}");
        }
    }
}
