//! The packed formats: packing and unpacking a row. All but int8 are block formats of GGUF files.
//!
//! - `float`: f16 and bf16, in blocks of one weight.
//! - `simple`: blocks of 32 weights with one scale, and possibly a minimum, in f16. `nonlinear` is a variant with
//!   unevenly spaced values.
//! - `fp4`: blocks of 32 4-bit floating-point numbers with a power of two as the scale.
//! - `affine` and `symmetric`: blocks of 256 weights, whose sub-blocks have quantized scales, with and without
//!   minimums. `six_bit_scales` is the layout of the scales that q4_k and q5_k share.
//! - `levels`: reading any of these blocks as unsigned integers with a scale and a minimum per sub-block, for unpacking
//!   and for integer products.
//! - `put_levels`: writing levels for blocks that have their scales.
//! - `bytes`: the operations that reading needs.
//! - `search`: finding scales with a small rounding error.
//!
//! All numbers are little-endian. Packing is bit-identical to ggml's reference quantizers, with and without
//! importance, and unpacking to its `dequantize_row` functions; the order of f32 operations matters in both.

mod affine;
mod bytes;
pub(super) mod float;
pub(crate) mod fp4;
pub(crate) mod levels;
pub(crate) mod nonlinear;
pub(super) mod put_levels;
mod search;
mod simple;
mod six_bit_scales;
pub(super) mod symmetric;

use half::f16;

use super::int8;
use crate::PackedFormat;
use levels::Subs;

/// Unpacks a row.
#[inline(always)]
pub(super) fn unpack_row(format: PackedFormat, bytes: &[u8], out: &mut [f32]) {
    match format {
        PackedFormat::Int8 => int8::unpack_row(bytes, out),
        PackedFormat::F16 => unpack_blocks(bytes, out, float::unpack_f16),
        PackedFormat::Bf16 => unpack_blocks(bytes, out, float::unpack_bf16),
        _ => levels::unpack_row(format, bytes, out),
    }
}

/// Unpacks rows of `columns` elements that are `stride` bytes apart to rows that are `width` elements apart. The formats
/// of key-value caches are unpacked by loops that are compiled for the caller's instruction set.
#[inline(always)]
pub(super) fn unpack_rows(
    format: PackedFormat,
    columns: usize,
    (bytes, stride): (&[u8], usize),
    (out, width): (&mut [f32], usize),
) {
    let row = format.row_bytes(columns);
    for (i, out) in out.chunks_exact_mut(width).enumerate() {
        let (bytes, out) = (&bytes[i * stride..][..row], &mut out[..columns]);
        match format {
            PackedFormat::F16 => unpack_blocks(bytes, out, float::unpack_f16),
            PackedFormat::Q8_0 => levels::unpack_row(PackedFormat::Q8_0, bytes, out),
            _ => unpack_row_out_of_line(format, bytes, out),
        }
    }
}

#[inline(never)]
fn unpack_row_out_of_line(format: PackedFormat, bytes: &[u8], out: &mut [f32]) {
    unpack_row(format, bytes, out);
}

/// Packs a row, with the importance of its columns. A block with a non-finite weight gets a NaN scale.
pub(super) fn pack_row(
    format: PackedFormat,
    row: &[f32],
    importance: Option<&[f32]>,
    out: &mut [u8],
) {
    let simple = simple::Importance::of(row, importance);
    match format {
        PackedFormat::Int8 => int8::pack_row(row, out),
        PackedFormat::F16 => pack_blocks(row, None, out, |w, _, out| float::pack_f16(w, out)),
        PackedFormat::Bf16 => pack_blocks(row, None, out, |w, _, out| float::pack_bf16(w, out)),
        PackedFormat::Q8_0 => pack_blocks(row, None, out, |w, _, out| simple::pack_q8_0(w, out)),
        PackedFormat::Q4_0 => pack_blocks(row, importance, out, |w, block, out| {
            simple::pack_q4_0(w, simple.block(w, block), out);
        }),
        PackedFormat::Q4_1 => pack_blocks(row, importance, out, |w, block, out| {
            simple::pack_q4_1(w, simple.block(w, block), out);
        }),
        PackedFormat::Q5_0 => pack_blocks(row, importance, out, |w, block, out| {
            simple::pack_q5_0(w, simple.block(w, block), out);
        }),
        PackedFormat::Q5_1 => pack_blocks(row, importance, out, |w, block, out| {
            simple::pack_q5_1(w, simple.block(w, block), out);
        }),
        PackedFormat::Iq4Nl => pack_blocks(row, importance, out, nonlinear::pack),
        PackedFormat::Mxfp4 => pack_blocks(row, None, out, |w, _, out| fp4::pack(w, out)),
        PackedFormat::Q2K => pack_blocks(row, importance, out, affine::pack_q2),
        PackedFormat::Q3K => pack_blocks(row, importance, out, symmetric::pack_q3),
        PackedFormat::Q4K => pack_blocks(row, importance, out, affine::pack_q4),
        PackedFormat::Q5K => pack_blocks(row, importance, out, affine::pack_q5),
        PackedFormat::Q6K => pack_blocks(row, importance, out, symmetric::pack_q6),
    }
    let (len, bytes) = (format.block_len(), format.block_bytes());
    if let Some((at, nan)) = nan_scale(format) {
        for (w, block) in row.chunks(len).zip(out.chunks_mut(bytes)) {
            if !w.iter().all(|w| w.is_finite()) {
                block[at..at + nan.len()].copy_from_slice(nan);
            }
        }
    }
}

/// The position of a block's scale, and the bytes of one that is NaN. Every weight of the block is a multiple of the scale, plus
/// a minimum.
const fn nan_scale(format: PackedFormat) -> Option<(usize, &'static [u8])> {
    const F16: &[u8] = &f16::NAN.to_le_bytes();
    Some(match format {
        PackedFormat::Int8 | PackedFormat::F16 | PackedFormat::Bf16 => return None,
        PackedFormat::Mxfp4 => (0, &[fp4::NAN]),
        PackedFormat::Q8_0
        | PackedFormat::Q4_0
        | PackedFormat::Q4_1
        | PackedFormat::Q5_0
        | PackedFormat::Q5_1
        | PackedFormat::Iq4Nl
        | PackedFormat::Q4K
        | PackedFormat::Q5K => (0, F16),
        PackedFormat::Q2K => (80, F16),
        PackedFormat::Q3K => (108, F16),
        PackedFormat::Q6K => (208, F16),
    })
}

#[inline(always)]
fn unpack_blocks<const BYTES: usize, const LEN: usize>(
    bytes: &[u8],
    out: &mut [f32],
    unpack: impl Fn(&[u8; BYTES], &mut [f32; LEN]),
) {
    let (blocks, _) = bytes.as_chunks::<BYTES>();
    let (out, _) = out.as_chunks_mut::<LEN>();
    for (block, out) in blocks.iter().zip(out) {
        unpack(block, out);
    }
}

fn pack_blocks<const BYTES: usize, const LEN: usize>(
    row: &[f32],
    importance: Option<&[f32]>,
    out: &mut [u8],
    pack: impl Fn(&[f32; LEN], Option<&[f32; LEN]>, &mut [u8; BYTES]),
) {
    let (row, _) = row.as_chunks::<LEN>();
    let (out, _) = out.as_chunks_mut::<BYTES>();
    let importance = importance.map(|importance| importance.as_chunks::<LEN>().0);
    for (at, (w, out)) in row.iter().zip(out).enumerate() {
        pack(w, importance.and_then(|all| all.get(at)), out);
    }
}

/// The f16 at `at` of a block.
#[inline(always)]
fn scale(block: &[u8], at: usize) -> f32 {
    float::f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

/// Writes an f16 at `at` of a block and returns it rounded.
fn put_scale(block: &mut [u8], at: usize, scale: f32) -> f32 {
    let rounded = f16::from_f32(scale);
    block[at..at + 2].copy_from_slice(&rounded.to_le_bytes());
    rounded.to_f32()
}
