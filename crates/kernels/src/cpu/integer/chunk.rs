//! Reading 256 weights of a row to registers, as levels with scales and minimums, with the vector instructions of x86-64
//! (AVX512). The levels are those of [`levels::read`](super::super::blocks::levels::read), which documents the formats'
//! layouts together with its modules.

use std::arch::x86_64::{
    __m128i, __m512, __m512i, _mm256_castsi128_si256, _mm256_inserti128_si256, _mm256_set1_epi16,
    _mm512_add_epi32, _mm512_and_si512, _mm512_broadcast_i32x4, _mm512_broadcast_i64x4,
    _mm512_castps_si512, _mm512_castsi128_si512, _mm512_castsi256_si512, _mm512_castsi512_ps,
    _mm512_castsi512_si128, _mm512_castsi512_si256, _mm512_cmpeq_epi32_mask, _mm512_cvtepi8_epi32,
    _mm512_cvtepi32_ps, _mm512_cvtepu8_epi32, _mm512_cvtph_ps, _mm512_inserti32x4,
    _mm512_inserti64x4, _mm512_mask_add_epi8, _mm512_mask_mov_epi32, _mm512_max_epi32,
    _mm512_mul_ps, _mm512_or_si512, _mm512_permutex2var_epi16, _mm512_set1_epi8, _mm512_set1_epi32,
    _mm512_setr_epi64, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_shuffle_epi8,
    _mm512_slli_epi32, _mm512_sllv_epi64, _mm512_srli_epi16, _mm512_srlv_epi64, _mm512_sub_epi32,
    _mm512_test_epi8_mask, _mm512_xor_si512,
};

use super::super::blocks::{fp4, nonlinear};
use super::layout::format;
use super::load::{integers, sixteen, sixty_four, thirty_two};
use super::registers::{READ, read_chunk};
use super::subs::{exponents, four_bit_subs, signed_six_bit_subs, six_bit_subs};

/// 256 weights: 64 levels per register, and an element per sub-block of 16 in the others.
#[derive(Clone, Copy)]
pub(super) struct Chunk {
    pub(super) levels: [__m512i; 4],
    pub(super) scales: __m512,
    pub(super) minimums: __m512,
}

/// Reads a chunk. In one that is not whole, the levels, scales and minimums of the missing sub-blocks have any value.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) fn read<const FORMAT: u8>(bytes: &[u8; READ]) -> Chunk {
    let zero = _mm512_setzero_ps();
    read_chunk!(
        FORMAT, bytes, zero,
        eight_bits: signed_bytes(bytes),
        by_table: (codes, table) => levels_of_codes(codes, table),
        none: [_mm512_setzero_si512(); 4]
    )
}

/// The levels of q8_0.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn signed_bytes(bytes: &[u8; READ]) -> [__m512i; 4] {
    let mut levels = [_mm512_set1_epi8(-128); 4];
    for (step, levels) in levels.iter_mut().enumerate() {
        let first = _mm512_castsi256_si512(thirty_two(bytes, 68 * step + 2));
        let both = _mm512_inserti64x4::<1>(first, thirty_two(bytes, 68 * step + 36));
        *levels = _mm512_xor_si512(both, *levels);
    }
    levels
}

/// Words of four consecutive blocks, `bytes` apart: the eight from byte `at` of each. Counted from [`line`].
const fn words_of_four_blocks(bytes: usize, at: usize, part: usize) -> [u16; 32] {
    let first = (4 * bytes * part + at - line(bytes, part)) / 2;
    let (mut words, mut i) = ([0; 32], 0);
    while i < 32 {
        words[i] = (first + i % 8 + i / 8 * (bytes / 2)) as u16;
        i += 1;
    }
    words
}

/// The last multiple of 64 bytes before four blocks. The parts of a chunk have loads in common.
const fn line(bytes: usize, part: usize) -> usize {
    4 * bytes * part / 64 * 64
}

/// Words of the 128 bytes from [`line`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn words_at(words: &[u16; 32], bytes: &[u8; READ], line: usize) -> __m512i {
    let (first, second) = (sixty_four(bytes, line), sixty_four(bytes, line + 64));
    _mm512_permutex2var_epi16(first, integers(words), second)
}

/// The 16 bytes of four consecutive blocks of `BYTES`, of which the first begin at `at`. Blocks with an odd number of bytes
/// do not consist of words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn sixteen_of_four_blocks<const BYTES: usize>(bytes: &[u8; READ], at: usize) -> __m512i {
    let four = _mm512_castsi128_si512(sixteen(bytes, at));
    let four = _mm512_inserti32x4::<1>(four, sixteen(bytes, at + BYTES));
    let four = _mm512_inserti32x4::<2>(four, sixteen(bytes, at + 2 * BYTES));
    _mm512_inserti32x4::<3>(four, sixteen(bytes, at + 3 * BYTES))
}

/// The levels of blocks of 32 with two levels per byte, from byte `AT` of blocks of `BYTES`, in [`Order::Halves`](super::layout::Order::Halves).
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn nibbles<const BYTES: usize, const AT: usize>(bytes: &[u8; READ]) -> [__m512i; 4] {
    let (first, second) = if BYTES.is_multiple_of(2) {
        let (first, second) = (
            const { words_of_four_blocks(BYTES, AT, 0) },
            const { words_of_four_blocks(BYTES, AT, 1) },
        );
        (
            words_at(&first, bytes, line(BYTES, 0)),
            words_at(&second, bytes, line(BYTES, 1)),
        )
    } else {
        (
            sixteen_of_four_blocks::<BYTES>(bytes, AT),
            sixteen_of_four_blocks::<BYTES>(bytes, 4 * BYTES + AT),
        )
    };
    let low = _mm512_set1_epi8(15);
    [
        _mm512_and_si512(first, low),
        _mm512_and_si512(_mm512_srli_epi16::<4>(first), low),
        _mm512_and_si512(second, low),
        _mm512_and_si512(_mm512_srli_epi16::<4>(second), low),
    ]
}

/// The levels that 4-bit codes select from a table.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn levels_of_codes(mut codes: [__m512i; 4], table: &[u8; 16]) -> [__m512i; 4] {
    let values = _mm512_broadcast_i32x4(sixteen(table, 0));
    for codes in &mut codes {
        *codes = _mm512_shuffle_epi8(values, *codes);
    }
    codes
}

/// Adds 16 to levels of [`nibbles`] by the bits of the number at byte `AT` of blocks of `BYTES`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn with_fifth_bits<const BYTES: usize, const AT: usize>(
    mut levels: [__m512i; 4],
    bytes: &[u8; READ],
) -> [__m512i; 4] {
    let sixteen = _mm512_set1_epi8(16);
    for (at, levels) in levels.iter_mut().enumerate() {
        let start = 4 * BYTES * (at / 2) + AT + at % 2 * 2;
        let mut mask = 0u64;
        for block in 0..4 {
            let at = start + BYTES * block;
            let bits = u16::from_le_bytes([bytes[at], bytes[at + 1]]);
            mask |= u64::from(bits) << (16 * block);
        }
        *levels = _mm512_mask_add_epi8(*levels, mask, *levels, sixteen);
    }
    levels
}

/// 2-bit levels: each half of the chunk has 32 bytes, from byte `at`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn pairs(bytes: &[u8; READ], at: usize) -> [__m512i; 4] {
    let mut levels = [_mm512_set1_epi8(3); 4];
    for (step, levels) in levels.iter_mut().enumerate() {
        let shifts = match step % 2 {
            0 => _mm512_setr_epi64(0, 0, 0, 0, 2, 2, 2, 2),
            _ => _mm512_setr_epi64(4, 4, 4, 4, 6, 6, 6, 6),
        };
        let twice = _mm512_broadcast_i64x4(thirty_two(bytes, at + step / 2 * 32));
        *levels = _mm512_and_si512(_mm512_srlv_epi64(twice, shifts), *levels);
    }
    levels
}

/// Adds `VALUE` to levels by the bits of 32 bytes from byte `at`: bit `i` of byte `l` belongs to weight `32 i + l`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn with_bits<const VALUE: i8>(
    mut levels: [__m512i; 4],
    bytes: &[u8; READ],
    at: usize,
) -> [__m512i; 4] {
    let (value, twice) = (
        _mm512_set1_epi8(VALUE),
        _mm512_broadcast_i64x4(thirty_two(bytes, at)),
    );
    for (step, levels) in levels.iter_mut().enumerate() {
        let byte = |shift: usize| 0x0101_0101_0101_0101i64 << (2 * step + shift);
        let (first, second) = (byte(0), byte(1));
        let bits = _mm512_setr_epi64(first, first, first, first, second, second, second, second);
        let mask = _mm512_test_epi8_mask(twice, bits);
        *levels = _mm512_mask_add_epi8(*levels, mask, *levels, value);
    }
    levels
}

/// The 4-bit levels of q4_k and q5_k: each quarter of the chunk has 32 bytes, from byte `at`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn wide_nibbles(bytes: &[u8; READ], at: usize) -> [__m512i; 4] {
    let shifts = _mm512_setr_epi64(0, 0, 0, 0, 4, 4, 4, 4);
    let mut levels = [_mm512_set1_epi8(15); 4];
    for (step, levels) in levels.iter_mut().enumerate() {
        let twice = _mm512_broadcast_i64x4(thirty_two(bytes, at + 32 * step));
        *levels = _mm512_and_si512(_mm512_srlv_epi64(twice, shifts), *levels);
    }
    levels
}

/// The levels of q6_k.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn six_bits(bytes: &[u8; READ]) -> [__m512i; 4] {
    let (low, upper) = (_mm512_set1_epi8(15), _mm512_set1_epi8(48));
    let mut levels = [low; 4];
    for half in 0..2 {
        let four = sixty_four(bytes, 64 * half);
        let two = _mm512_broadcast_i64x4(thirty_two(bytes, 128 + 32 * half));
        // The bits of two groups of 32 weights, in bits 4 and 5.
        let first = _mm512_sllv_epi64(two, _mm512_setr_epi64(4, 4, 4, 4, 2, 2, 2, 2));
        let second = _mm512_srlv_epi64(two, _mm512_setr_epi64(0, 0, 0, 0, 2, 2, 2, 2));
        let high = _mm512_srlv_epi64(four, _mm512_setr_epi64(4, 4, 4, 4, 4, 4, 4, 4));
        levels[2 * half] =
            _mm512_or_si512(_mm512_and_si512(four, low), _mm512_and_si512(first, upper));
        levels[2 * half + 1] =
            _mm512_or_si512(_mm512_and_si512(high, low), _mm512_and_si512(second, upper));
    }
    levels
}

/// Word numbers of an f16 at byte `at` of consecutive blocks, `bytes` apart, each twice. Counted from [`line`].
const fn words_of_blocks(bytes: usize, at: usize, part: usize) -> [u16; 32] {
    let first = (4 * bytes * part + at - line(bytes, part)) / 2;
    let (mut words, mut sub) = ([0; 32], 0);
    while sub < 32 {
        // Two registers have 64 words; words of later blocks are not used.
        words[sub] = ((first + sub / 2 * (bytes / 2)) % 64) as u16;
        sub += 1;
    }
    words
}

/// The f16 at byte `AT` of eight blocks of `BYTES`, twice each.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn halves<const BYTES: usize, const AT: usize>(bytes: &[u8; READ]) -> __m512 {
    let (first, second) = (
        const { words_of_blocks(BYTES, AT, 0) },
        const { words_of_blocks(BYTES, AT, 1) },
    );
    let first = words_at(&first, bytes, line(BYTES, 0));
    if 7 * BYTES + AT < 128 {
        return _mm512_cvtph_ps(_mm512_castsi512_si256(first));
    }
    let second = words_at(&second, bytes, line(BYTES, 1));
    let first = _mm256_castsi128_si256(_mm512_castsi512_si128(first));
    let second = _mm512_castsi512_si128(second);
    _mm512_cvtph_ps(_mm256_inserti128_si256::<1>(first, second))
}

/// The f16 at byte `at` in each element.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn half(bytes: &[u8; READ], at: usize) -> __m512 {
    let half = i16::from_le_bytes([bytes[at], bytes[at + 1]]);
    _mm512_cvtph_ps(_mm256_set1_epi16(half))
}

/// The scales of mxfp4 with these exponents.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn powers_of_two(exponents: __m128i) -> __m512 {
    let (one, largest) = (_mm512_set1_epi32(1), _mm512_set1_epi32(fp4::NAN.into()));
    let exponents = _mm512_cvtepu8_epi32(exponents);
    let normal = _mm512_slli_epi32::<23>(_mm512_sub_epi32(exponents, one));
    // Those of 0 and 1. Of larger exponents, these bits are the smaller number.
    let subnormal = _mm512_slli_epi32::<21>(_mm512_add_epi32(exponents, one));
    let bits = _mm512_max_epi32(normal, subnormal);
    let nan = _mm512_set1_epi32(f32::NAN.to_bits().cast_signed());
    let is_nan = _mm512_cmpeq_epi32_mask(exponents, largest);
    _mm512_castsi512_ps(_mm512_mask_mov_epi32(bits, is_nan, nan))
}

/// Stored minimums are added, those of levels subtracted.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn negative(values: __m512) -> __m512 {
    let sign = _mm512_set1_epi32(i32::MIN);
    _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(values), sign))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn scaled(scale: __m512, values: __m512) -> __m512 {
    _mm512_mul_ps(scale, values)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn unsigned(bytes: __m128i) -> __m512 {
    _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn signed(bytes: __m128i) -> __m512 {
    _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))
}
