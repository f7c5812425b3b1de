//! 16-bit floating-point weights.

use half::{bf16, f16};

#[inline(always)]
pub(super) fn unpack_f16(block: &[u8; 2], out: &mut [f32; 1]) {
    out[0] = f16_to_f32(u16::from_le_bytes(*block));
}

#[inline(always)]
pub(super) fn unpack_bf16(block: &[u8; 2], out: &mut [f32; 1]) {
    out[0] = bf16_to_f32(u16::from_le_bytes(*block));
}

pub(super) fn pack_f16(w: &[f32; 1], out: &mut [u8; 2]) {
    *out = f16::from_f32(w[0]).to_le_bytes();
}

pub(super) fn pack_bf16(w: &[f32; 1], out: &mut [u8; 2]) {
    *out = bf16::from_f32(w[0]).to_le_bytes();
}

/// Converts a bf16.
#[inline(always)]
pub(in super::super) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Converts an f16 without branches, so that loops over it vectorize.
#[inline(always)]
pub(in super::super) fn f16_to_f32(bits: u16) -> f32 {
    // 2 to the difference of the exponent biases. Multiplying by it is exact, also for subnormal numbers.
    const BIAS: f32 = f32::from_bits((127 + 112) << 23);
    // Infinity and NaN have the largest exponent in both types.
    const SPECIAL: u32 = 0x7c00 << 13;
    let sign = u32::from(bits & 0x8000) << 16;
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let finite = (f32::from_bits(magnitude) * BIAS).to_bits();
    let special = if magnitude >= SPECIAL { 0xff << 23 } else { 0 };
    f32::from_bits(sign | finite | special)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_is_converted_exactly() {
        for bits in 0..=u16::MAX {
            let (found, expected) = (f16_to_f32(bits), f16::from_bits(bits).to_f32());
            let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
            assert!(same, "{bits:#x}: {found}, not {expected}");
        }
    }
}
