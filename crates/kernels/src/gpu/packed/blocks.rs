//! Reading the blocks of packed weights, four weights at a time: their levels are bytes of a word.
//!
//! `crate::cpu` documents the layouts (`cpu/blocks`). Here a layout is a table of bit fields, since in each of them four
//! consecutive weights, from a multiple of 4 on, have their bits at the same place of four consecutive bytes. Only the
//! fifth bits of q5_0 and q5_1 are in the order of the weights.
//!
//! The values have the bits of those that the CPU unpacks: all products of a scale and a level are exact in f32, so that
//! it does not matter whether a device fuses the subtraction of the minimum with them. f16 numbers are converted in
//! integers, because devices may lack the type and may round subnormal numbers to 0. In f32, only the scales of mxfp4 with the
//! exponents 0 and 1 are subnormal: devices may round the weights of their blocks, at most 1.5 · 2⁻¹²⁴, to 0.

use cubecl::prelude::*;

use crate::PackedFormat;
use crate::cpu::blocks::{fp4, levels, nonlinear};

/// Weights that share a scale and a minimum, from a multiple of this number on.
pub(super) const SUB: usize = levels::SUB;

/// A word of four bytes with this value.
const EACH: u32 = 0x0101_0101;

/// The place of some bits of each weight: groups of `run` bytes from the byte `at` of a block on. Byte `l` of a group has,
/// from its lowest `bits` on, those of the weights `l`, `run + l`, `2 run + l` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Field {
    at: usize,
    bits: usize,
    run: usize,
}

/// The upper bits of the levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Upper {
    None,
    Field(Field),
    /// One bit per weight in the order of the weights, from this byte on.
    Ordered(usize),
}

const fn field(at: usize, bits: usize, run: usize) -> Field {
    Field { at, bits, run }
}

/// The lower bits of the levels.
const fn lower(format: PackedFormat) -> Field {
    match format {
        // Their values are read as halves of words.
        PackedFormat::F16 | PackedFormat::Bf16 => field(0, 8, 1),
        PackedFormat::Int8 => field(4, 8, 1),
        PackedFormat::Q8_0 => field(2, 8, 32),
        PackedFormat::Q4_0 | PackedFormat::Iq4Nl => field(2, 4, 16),
        PackedFormat::Mxfp4 => field(1, 4, 16),
        PackedFormat::Q4_1 => field(4, 4, 16),
        PackedFormat::Q5_0 => field(6, 4, 16),
        PackedFormat::Q5_1 => field(8, 4, 16),
        PackedFormat::Q2K => field(16, 2, 32),
        PackedFormat::Q3K => field(32, 2, 32),
        PackedFormat::Q4K => field(16, 4, 32),
        PackedFormat::Q5K => field(48, 4, 32),
        PackedFormat::Q6K => field(0, 4, 64),
    }
}

const fn upper(format: PackedFormat) -> Upper {
    match format {
        PackedFormat::Q5_0 => Upper::Ordered(2),
        PackedFormat::Q5_1 => Upper::Ordered(4),
        PackedFormat::Q3K => Upper::Field(field(0, 1, 32)),
        PackedFormat::Q5K => Upper::Field(field(16, 1, 32)),
        PackedFormat::Q6K => Upper::Field(field(128, 2, 32)),
        _ => Upper::None,
    }
}

/// True if words begin at multiples of 4 bytes of a row.
const fn is_aligned(format: PackedFormat) -> bool {
    matches!(format, PackedFormat::Int8) || format.block_bytes().is_multiple_of(4)
}

/// The number that is subtracted from a level.
const fn offset(format: PackedFormat) -> u32 {
    match levels::offset(format) {
        Some(offset) => offset as u32,
        None => 128,
    }
}

/// A weight is `scale (level - offset) - minimum`.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Scale {
    scale: f32,
    minimum: f32,
}

/// The byte `at` of the row that begins at the word `row`.
#[cube]
fn byte(words: &Array<u32>, row: usize, at: usize) -> u32 {
    (words[row + at / 4] >> (u32::cast_from(at % 4) * 8)) & 255
}

/// The 16 bits at the even byte `at` of the row that begins at the word `row`.
#[cube]
fn half(words: &Array<u32>, row: usize, at: usize) -> u32 {
    (words[row + at / 4] >> (u32::cast_from(at % 4) * 8)) & 0xffff
}

/// The 32 bits at the byte `at` of the row that begins at the word `row`.
#[cube]
#[allow(
    clippy::collapsible_if,
    reason = "the outer condition holds at compile time"
)]
#[allow(
    clippy::manual_is_multiple_of,
    reason = "kernels have no such function"
)]
fn word(words: &Array<u32>, row: usize, at: usize, #[comptime] aligned: bool) -> u32 {
    let index = row + at / 4;
    let mut word = words[index];
    if comptime!(!aligned) {
        let bytes_before = at % 4;
        if bytes_before > 0 {
            let shift = u32::cast_from(bytes_before) * 8;
            word = (word >> shift) | (words[index + 1] << (32 - shift));
        }
    }
    word
}

/// The f16 with these bits.
#[cube]
fn f16_to_f32(bits: u32) -> f32 {
    let magnitude = bits & 0x7fff;
    let special = select(magnitude >= 0x7c00, 112u32 << 23, 0u32);
    let normal = f32::reinterpret((magnitude << 13) + (112u32 << 23) + special);
    // Units of 2⁻²⁴.
    let subnormal = f32::cast_from(magnitude) * 5.960_464_5e-8;
    let finite = select(magnitude < 0x0400, subnormal, normal);
    f32::reinterpret(u32::reinterpret(finite) | ((bits & 0x8000) << 16))
}

/// The scale of mxfp4 with this exponent.
#[cube]
fn power_of_two(exponent: u32) -> f32 {
    let normal = (exponent - 1) << 23;
    let bits = select(exponent < 2, (exponent + 1) << 21, normal);
    let is_nan = exponent == comptime!(u32::from(fp4::NAN));
    f32::reinterpret(select(is_nan, comptime!(f32::NAN.to_bits()), bits))
}

/// The scale and the minimum of the weights of `column`.
#[cube]
pub(super) fn scale(
    words: &Array<u32>,
    row: usize,
    column: usize,
    #[comptime] format: PackedFormat,
) -> Scale {
    let (len, bytes) = comptime!((format.block_len(), format.block_bytes()));
    let block = column / len * bytes;
    let sub = column % len / SUB;
    let mut d = f32::new(1.0);
    let mut minimum = f32::new(0.0);
    match comptime!(format) {
        PackedFormat::F16 | PackedFormat::Bf16 => {}
        PackedFormat::Int8 => d = f32::reinterpret(words[row]),
        PackedFormat::Q8_0 | PackedFormat::Q4_0 | PackedFormat::Q5_0 | PackedFormat::Iq4Nl => {
            d = f16_to_f32(half(words, row, block));
        }
        PackedFormat::Mxfp4 => d = power_of_two(byte(words, row, block)),
        PackedFormat::Q4_1 | PackedFormat::Q5_1 => {
            d = f16_to_f32(half(words, row, block));
            minimum = -f16_to_f32(half(words, row, block + 2));
        }
        PackedFormat::Q2K => {
            let both = byte(words, row, block + sub);
            d = f16_to_f32(half(words, row, block + 80)) * f32::cast_from(both & 15);
            minimum = f16_to_f32(half(words, row, block + 82)) * f32::cast_from(both >> 4);
        }
        PackedFormat::Q4K | PackedFormat::Q5K => {
            let j = sub / 2;
            let first = block + 4 + j % 4;
            let of_scale = byte(words, row, first);
            let of_minimum = byte(words, row, first + 4);
            let low = byte(words, row, first + 8);
            let is_first = j < 4;
            let scale = (low & 15) | ((of_scale >> 6) << 4);
            let scale = select(is_first, of_scale & 63, scale);
            let least = (low >> 4) | ((of_minimum >> 6) << 4);
            let least = select(is_first, of_minimum & 63, least);
            d = f16_to_f32(half(words, row, block)) * f32::cast_from(scale);
            minimum = f16_to_f32(half(words, row, block + 2)) * f32::cast_from(least);
        }
        PackedFormat::Q3K => {
            let low = byte(words, row, block + 96 + sub % 8) >> (u32::cast_from(sub / 8) * 4);
            let upper = byte(words, row, block + 104 + sub % 4) >> (u32::cast_from(sub / 4) * 2);
            let scale = (low & 15) | ((upper & 3) << 4);
            let scale = f32::cast_from(scale) - 32.0;
            d = f16_to_f32(half(words, row, block + 108)) * scale;
        }
        PackedFormat::Q6K => {
            let signed = byte(words, row, block + 192 + sub) ^ 128;
            let scale = f32::cast_from(signed) - 128.0;
            d = f16_to_f32(half(words, row, block + 208)) * scale;
        }
    }
    Scale { scale: d, minimum }
}

/// The bits of the field of four weights from `at` of a block on, one per byte.
#[cube]
fn bits(
    words: &Array<u32>,
    row: usize,
    block: usize,
    at: usize,
    #[comptime] field: Field,
    #[comptime] aligned: bool,
) -> u32 {
    let Field {
        at: start,
        bits,
        run,
    } = comptime!(field);
    let group = comptime!(run * 8 / bits);
    let mask = comptime!(EACH * ((1 << bits) - 1));
    let within = at % group;
    let byte = block + start + at / group * run + within % run;
    let shift = u32::cast_from(within / run * bits);
    (word(words, row, byte, aligned) >> shift) & mask
}

/// The levels of the four weights from `column` on, one per byte.
#[cube]
fn levels_of(
    words: &Array<u32>,
    row: usize,
    column: usize,
    #[comptime] format: PackedFormat,
) -> u32 {
    let (len, bytes) = comptime!((format.block_len(), format.block_bytes()));
    let aligned = comptime!(is_aligned(format));
    let block = column / len * bytes;
    let at = column % len;
    let low = comptime!(lower(format));
    let mut levels = bits(words, row, block, at, low, aligned);
    match comptime!(upper(format)) {
        Upper::None => {}
        Upper::Field(field) => {
            levels |= bits(words, row, block, at, field, aligned) << comptime!(low.bits as u32);
        }
        Upper::Ordered(start) => {
            let four = word(words, row, block + start, aligned) >> u32::cast_from(at);
            let spread = (four & 1) | ((four & 2) << 7) | ((four & 4) << 14) | ((four & 8) << 21);
            levels |= spread << 4;
        }
    }
    // Signed bytes.
    if comptime!(low.bits == 8) {
        levels ^= comptime!(EACH * 128);
    }
    levels
}

/// The level that a 4-bit code selects.
#[cube]
fn level_of_code(code: u32, #[comptime] table: [u32; 4]) -> u32 {
    let low = select(code < 4, comptime!(table[0]), comptime!(table[1]));
    let high = select(code < 12, comptime!(table[2]), comptime!(table[3]));
    (select(code < 8, low, high) >> ((code & 3) * 8)) & 255
}

/// The levels that 4-bit codes select, in words of four bytes; `None` if the format stores levels.
fn table(format: PackedFormat) -> Option<[u32; 4]> {
    let levels = match format {
        PackedFormat::Iq4Nl => nonlinear::LEVELS,
        PackedFormat::Mxfp4 => fp4::LEVELS,
        _ => return None,
    };
    let mut words = [0; 4];
    for (at, level) in levels.into_iter().enumerate() {
        words[at / 4] |= u32::from(level) << (at % 4 * 8);
    }
    Some(words)
}

/// Writes the four weights from `column` on, a multiple of 4, of the row that begins at the word `row` to `values`. `scale`
/// is that of [`scale()`]. A row's memory is that of whole groups of four weights.
#[cube]
pub(super) fn four_weights(
    words: &Array<u32>,
    row: usize,
    column: usize,
    scale: Scale,
    values: &mut Array<f32>,
    #[comptime] format: PackedFormat,
) {
    if comptime!(matches!(format, PackedFormat::F16 | PackedFormat::Bf16)) {
        #[unroll]
        for n in 0..4usize {
            let pair = words[row + column / 2 + n / 2];
            let bits = (pair >> comptime!(n as u32 % 2 * 16)) & 0xffff;
            if comptime!(matches!(format, PackedFormat::F16)) {
                values[n] = f16_to_f32(bits);
            } else {
                values[n] = f32::reinterpret(bits << 16);
            }
        }
    } else {
        let levels = levels_of(words, row, column, format);
        #[unroll]
        for n in 0..4usize {
            let mut level = (levels >> comptime!(n as u32 * 8)) & 255;
            if comptime!(table(format).is_some()) {
                level = level_of_code(level, comptime!(table(format).unwrap_or_default()));
            }
            let level = f32::cast_from(level) - comptime!(offset(format) as f32);
            values[n] = scale.scale * level - scale.minimum;
        }
    }
}
