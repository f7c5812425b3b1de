//! Reading 256 weights of a row to registers, as levels with scales and minimums, with the vector instructions of x86-64
//! (AVX2). Levels, scales and minimums are those of the larger registers of `cpu/integer/chunk.rs`.

use std::arch::x86_64::{
    __m128i, __m256, __m256i, _mm_set1_epi16, _mm_srli_si128, _mm256_add_epi32, _mm256_and_si256,
    _mm256_broadcastsi128_si256, _mm256_castps_si256, _mm256_castsi128_si256, _mm256_castsi256_ps,
    _mm256_cmpeq_epi8, _mm256_cmpeq_epi32, _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps,
    _mm256_cvtepu8_epi32, _mm256_cvtph_ps, _mm256_inserti128_si256, _mm256_max_epi32,
    _mm256_mul_ps, _mm256_or_si256, _mm256_permutevar8x32_ps, _mm256_set1_epi8, _mm256_set1_epi32,
    _mm256_set1_epi64x, _mm256_setr_epi32, _mm256_setr_epi64x, _mm256_setzero_ps,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_slli_epi16, _mm256_slli_epi32,
    _mm256_srli_epi16, _mm256_sub_epi32, _mm256_xor_si256,
};

use super::super::super::blocks::{fp4, nonlinear};
use super::super::layout::{STEPS, format};
use super::super::load::{sixteen, thirty_two};
use super::super::registers::{READ, read_chunk};
use super::super::subs::{exponents, four_bit_subs, signed_six_bit_subs, six_bit_subs};
use super::is_signed;

/// The registers that an element of a larger register is here.
pub(super) type Two<T> = [T; 2];

/// 256 weights: 32 levels per register, and an element per sub-block of 16 in the others.
#[derive(Clone, Copy)]
pub(super) struct Chunk {
    pub(super) levels: [Two<__m256i>; STEPS],
    pub(super) scales: Two<__m256>,
    pub(super) minimums: Two<__m256>,
}

/// Reads a chunk. In one that is not whole, the levels, scales and minimums of the missing sub-blocks have any value. 8-bit
/// levels are without their offset of 128 if [`is_signed`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn read<const VNNI: bool, const FORMAT: u8>(bytes: &[u8; READ]) -> Chunk {
    let zero = [_mm256_setzero_ps(); 2];
    let signed_levels = const { is_signed(VNNI, FORMAT) };
    read_chunk!(
        FORMAT, bytes, zero,
        eight_bits: eight_bits(bytes, signed_levels),
        by_table: (codes, table) => levels_of_codes(codes, table, signed_levels),
        none: [[_mm256_setzero_si256(); 2]; STEPS]
    )
}

/// The levels of q8_0.
#[inline]
#[target_feature(enable = "avx2")]
fn eight_bits(bytes: &[u8; READ], signed: bool) -> [Two<__m256i>; STEPS] {
    let mut levels = [[_mm256_setzero_si256(); 2]; STEPS];
    for (block, levels) in levels.as_flattened_mut().iter_mut().enumerate() {
        *levels = thirty_two(bytes, 34 * block + 2);
        if !signed {
            *levels = _mm256_xor_si256(*levels, _mm256_set1_epi8(-128));
        }
    }
    levels
}

/// The levels that 4-bit codes select from a table.
#[inline]
#[target_feature(enable = "avx2")]
fn levels_of_codes(
    mut codes: [Two<__m256i>; STEPS],
    table: &[u8; 16],
    signed: bool,
) -> [Two<__m256i>; STEPS] {
    let mut values = _mm256_broadcastsi128_si256(sixteen(table, 0));
    if signed {
        values = _mm256_xor_si256(values, _mm256_set1_epi8(-128));
    }
    for codes in codes.as_flattened_mut() {
        *codes = _mm256_shuffle_epi8(values, *codes);
    }
    codes
}

/// The levels of blocks of 32 with two levels per byte, from byte `AT` of blocks of `BYTES`, in
/// [`Order::Halves`](super::super::layout::Order::Halves).
#[inline]
#[target_feature(enable = "avx2")]
fn nibbles<const BYTES: usize, const AT: usize>(bytes: &[u8; READ]) -> [Two<__m256i>; STEPS] {
    let low = _mm256_set1_epi8(15);
    let mut levels = [[low; 2]; STEPS];
    for pair in 0..4 {
        let first = _mm256_castsi128_si256(sixteen(bytes, 2 * pair * BYTES + AT));
        let second = sixteen(bytes, (2 * pair + 1) * BYTES + AT);
        let both = _mm256_inserti128_si256::<1>(first, second);
        let step = pair / 2 * 2;
        levels[step][pair % 2] = _mm256_and_si256(both, low);
        levels[step + 1][pair % 2] = _mm256_and_si256(_mm256_srli_epi16::<4>(both), low);
    }
    levels
}

/// Adds 16 to levels of [`nibbles`] by the bits of the number at byte `AT` of blocks of `BYTES`.
#[inline]
#[target_feature(enable = "avx2")]
fn with_fifth_bits<const BYTES: usize, const AT: usize>(
    mut levels: [Two<__m256i>; STEPS],
    bytes: &[u8; READ],
) -> [Two<__m256i>; STEPS] {
    // The byte of a 32-bit number with a level's bit, and the bit.
    let bytes_of_levels = _mm256_setr_epi64x(
        0,
        0x0101_0101_0101_0101,
        0x0202_0202_0202_0202,
        0x0303_0303_0303_0303,
    );
    let bits = _mm256_set1_epi64x(0x8040_2010_0804_0201u64.cast_signed());
    let sixteen = _mm256_set1_epi8(16);
    for (step, levels) in levels.iter_mut().enumerate() {
        for (part, levels) in levels.iter_mut().enumerate() {
            let first = BYTES * (4 * (step / 2) + 2 * part) + AT + step % 2 * 2;
            let second = first + BYTES;
            let both = [
                bytes[first],
                bytes[first + 1],
                bytes[second],
                bytes[second + 1],
            ];
            let both = _mm256_set1_epi32(i32::from_le_bytes(both));
            let both = _mm256_and_si256(_mm256_shuffle_epi8(both, bytes_of_levels), bits);
            let upper = _mm256_and_si256(_mm256_cmpeq_epi8(both, bits), sixteen);
            *levels = _mm256_or_si256(*levels, upper);
        }
    }
    levels
}

/// 2-bit levels: each half of the chunk has 32 bytes, from byte `at`.
#[inline]
#[target_feature(enable = "avx2")]
fn pairs(bytes: &[u8; READ], at: usize) -> [Two<__m256i>; STEPS] {
    let low = _mm256_set1_epi8(3);
    let mut levels = [[low; 2]; STEPS];
    for half in 0..2 {
        let four = thirty_two(bytes, at + 32 * half);
        levels[2 * half] = [
            _mm256_and_si256(four, low),
            _mm256_and_si256(_mm256_srli_epi16::<2>(four), low),
        ];
        levels[2 * half + 1] = [
            _mm256_and_si256(_mm256_srli_epi16::<4>(four), low),
            _mm256_and_si256(_mm256_srli_epi16::<6>(four), low),
        ];
    }
    levels
}

/// Adds `VALUE` to smaller levels by the bits of 32 bytes from byte `at`: bit `i` of byte `l` belongs to weight `32 i + l`.
#[inline]
#[target_feature(enable = "avx2")]
fn with_bits<const VALUE: i8>(
    mut levels: [Two<__m256i>; STEPS],
    bytes: &[u8; READ],
    at: usize,
) -> [Two<__m256i>; STEPS] {
    let (value, all) = (_mm256_set1_epi8(VALUE), thirty_two(bytes, at));
    for (i, levels) in levels.as_flattened_mut().iter_mut().enumerate() {
        let bit = _mm256_set1_epi8((1u8 << i).cast_signed());
        let has_bit = _mm256_cmpeq_epi8(_mm256_and_si256(all, bit), bit);
        *levels = _mm256_or_si256(*levels, _mm256_and_si256(has_bit, value));
    }
    levels
}

/// The 4-bit levels of q4_k and q5_k: each quarter of the chunk has 32 bytes, from byte `at`.
#[inline]
#[target_feature(enable = "avx2")]
fn wide_nibbles(bytes: &[u8; READ], at: usize) -> [Two<__m256i>; STEPS] {
    let low = _mm256_set1_epi8(15);
    let mut levels = [[low; 2]; STEPS];
    for (step, levels) in levels.iter_mut().enumerate() {
        let both = thirty_two(bytes, at + 32 * step);
        *levels = [
            _mm256_and_si256(both, low),
            _mm256_and_si256(_mm256_srli_epi16::<4>(both), low),
        ];
    }
    levels
}

/// The levels of q6_k.
#[inline]
#[target_feature(enable = "avx2")]
fn six_bits(bytes: &[u8; READ]) -> [Two<__m256i>; STEPS] {
    let (low, upper) = (_mm256_set1_epi8(15), _mm256_set1_epi8(48));
    let mut levels = [[low; 2]; STEPS];
    for half in 0..2 {
        let (first, second) = (
            thirty_two(bytes, 64 * half),
            thirty_two(bytes, 64 * half + 32),
        );
        // The upper bits of four groups of 32 weights.
        let two = thirty_two(bytes, 128 + 32 * half);
        let join = |low, high| _mm256_or_si256(low, _mm256_and_si256(high, upper));
        let lower = |bytes| _mm256_and_si256(bytes, low);
        levels[2 * half] = [
            join(lower(first), _mm256_slli_epi16::<4>(two)),
            join(lower(second), _mm256_slli_epi16::<2>(two)),
        ];
        levels[2 * half + 1] = [
            join(lower(_mm256_srli_epi16::<4>(first)), two),
            join(
                lower(_mm256_srli_epi16::<4>(second)),
                _mm256_srli_epi16::<2>(two),
            ),
        ];
    }
    levels
}

/// The f16 at byte `AT` of eight blocks of `BYTES`, twice each.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn halves<const BYTES: usize, const AT: usize>(bytes: &[u8; READ]) -> Two<__m256> {
    let mut eight = [0; 16];
    for (block, half) in eight.as_chunks_mut::<2>().0.iter_mut().enumerate() {
        *half = [bytes[BYTES * block + AT], bytes[BYTES * block + AT + 1]];
    }
    let eight = _mm256_cvtph_ps(sixteen(&eight, 0));
    [
        _mm256_permutevar8x32_ps(eight, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
        _mm256_permutevar8x32_ps(eight, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7)),
    ]
}

/// The f16 at byte `at` in each element.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn half(bytes: &[u8; READ], at: usize) -> __m256 {
    _mm256_cvtph_ps(_mm_set1_epi16(i16::from_le_bytes([
        bytes[at],
        bytes[at + 1],
    ])))
}

/// The scales of mxfp4 with these exponents.
#[inline]
#[target_feature(enable = "avx2")]
fn powers_of_two(exponents: __m128i) -> Two<__m256> {
    let second = _mm_srli_si128::<8>(exponents);
    [power_of_two(exponents), power_of_two(second)]
}

/// The scales with the first eight exponents.
#[inline]
#[target_feature(enable = "avx2")]
fn power_of_two(exponents: __m128i) -> __m256 {
    let (one, largest) = (_mm256_set1_epi32(1), _mm256_set1_epi32(fp4::NAN.into()));
    let exponents = _mm256_cvtepu8_epi32(exponents);
    let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(exponents, one));
    // Those of 0 and 1. Of larger exponents, these bits are the smaller number.
    let subnormal = _mm256_slli_epi32::<21>(_mm256_add_epi32(exponents, one));
    let nan = _mm256_set1_epi32(f32::NAN.to_bits().cast_signed());
    let nan = _mm256_and_si256(_mm256_cmpeq_epi32(exponents, largest), nan);
    _mm256_castsi256_ps(_mm256_or_si256(_mm256_max_epi32(normal, subnormal), nan))
}

/// Stored minimums are added, those of levels subtracted.
#[inline]
#[target_feature(enable = "avx2")]
fn negative(values: Two<__m256>) -> Two<__m256> {
    let sign = _mm256_set1_epi32(i32::MIN);
    let mut negative = values;
    for values in &mut negative {
        *values = _mm256_castsi256_ps(_mm256_xor_si256(_mm256_castps_si256(*values), sign));
    }
    negative
}

#[inline]
#[target_feature(enable = "avx2")]
fn scaled(scale: __m256, [first, second]: Two<__m256>) -> Two<__m256> {
    [_mm256_mul_ps(scale, first), _mm256_mul_ps(scale, second)]
}

#[inline]
#[target_feature(enable = "avx2")]
fn unsigned(bytes: __m128i) -> Two<__m256> {
    let second = _mm_srli_si128::<8>(bytes);
    [
        _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
        _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(second)),
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn signed(bytes: __m128i) -> Two<__m256> {
    let second = _mm_srli_si128::<8>(bytes);
    [
        _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
        _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(second)),
    ]
}
