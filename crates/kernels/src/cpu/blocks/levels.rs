//! Block formats as unsigned integers: `w = scale (q - offset) - minimum`, with a scale and a minimum for each
//! [`SUB`] weights, and an offset per format.
//!
//! Symmetric formats have an offset and no minimums, the others minimums and no offset; so one of the two subtractions
//! is exact, and unpacking rounds as ggml does.

use super::{affine, fp4, nonlinear, simple, symmetric};
use crate::PackedFormat;

/// Weights per scale.
pub const SUB: usize = 16;
/// Weights that are unpacked at a time: a multiple of every format's block length.
const CHUNK: usize = 256;

/// The scales and minimums of consecutive sub-blocks.
#[derive(Debug)]
pub struct Subs<'a> {
    pub scales: &'a mut [f32],
    pub minimums: &'a mut [f32],
}

/// The offset of a format's levels; `None` if its weights are not stored as levels with a scale per block.
pub const fn offset(format: PackedFormat) -> Option<u8> {
    match format {
        PackedFormat::Int8 | PackedFormat::F16 | PackedFormat::Bf16 => None,
        PackedFormat::Q8_0 | PackedFormat::Iq4Nl => Some(128),
        PackedFormat::Q4_0 => Some(8),
        PackedFormat::Mxfp4 => Some(fp4::OFFSET),
        PackedFormat::Q5_0 => Some(16),
        PackedFormat::Q3K => Some(4),
        PackedFormat::Q6K => Some(32),
        PackedFormat::Q4_1
        | PackedFormat::Q5_1
        | PackedFormat::Q2K
        | PackedFormat::Q4K
        | PackedFormat::Q5K => Some(0),
    }
}

/// Reads the levels of some blocks: `q` has an element per weight, `subs` one per [`SUB`] weights. Formats without an
/// [`offset`] have no levels, and leave everything as it is.
#[inline(always)]
pub fn read(format: PackedFormat, bytes: &[u8], q: &mut [u8], subs: Subs<'_>) {
    // A function item would be called through a shim that is compiled for the baseline CPU.
    macro_rules! inlined {
        ($levels:path) => {
            #[inline(always)]
            |block, q| $levels(block, q)
        };
        ($levels:path, subs) => {
            #[inline(always)]
            |block, q, subs| $levels(block, q, subs)
        };
    }
    match format {
        PackedFormat::Int8 | PackedFormat::F16 | PackedFormat::Bf16 => {}
        PackedFormat::Q8_0 => {
            simple::read::<_, false>(bytes, q, subs, inlined!(simple::levels_q8_0));
        }
        PackedFormat::Q4_0 => {
            simple::read::<_, false>(bytes, q, subs, inlined!(simple::levels_q4_0));
        }
        PackedFormat::Q4_1 => {
            simple::read::<_, true>(bytes, q, subs, inlined!(simple::levels_q4_1));
        }
        PackedFormat::Q5_0 => {
            simple::read::<_, false>(bytes, q, subs, inlined!(simple::levels_q5_0));
        }
        PackedFormat::Q5_1 => {
            simple::read::<_, true>(bytes, q, subs, inlined!(simple::levels_q5_1));
        }
        PackedFormat::Iq4Nl => {
            simple::read::<_, false>(bytes, q, subs, inlined!(nonlinear::levels));
        }
        PackedFormat::Mxfp4 => read_blocks(bytes, q, subs, inlined!(fp4::levels, subs)),
        PackedFormat::Q2K => read_blocks(bytes, q, subs, inlined!(affine::levels_q2, subs)),
        PackedFormat::Q3K => read_blocks(bytes, q, subs, inlined!(symmetric::levels_q3, subs)),
        PackedFormat::Q4K => read_blocks(bytes, q, subs, inlined!(affine::levels_q4, subs)),
        PackedFormat::Q5K => read_blocks(bytes, q, subs, inlined!(affine::levels_q5, subs)),
        PackedFormat::Q6K => read_blocks(bytes, q, subs, inlined!(symmetric::levels_q6, subs)),
    }
}

#[inline(always)]
fn read_blocks<const BYTES: usize, const LEN: usize>(
    bytes: &[u8],
    q: &mut [u8],
    subs: Subs<'_>,
    read: impl Fn(&[u8; BYTES], &mut [u8; LEN], &mut Subs<'_>),
) {
    let (blocks, _) = bytes.as_chunks::<BYTES>();
    let (q, _) = q.as_chunks_mut::<LEN>();
    let scales = subs.scales.chunks_exact_mut(LEN / SUB);
    let minimums = subs.minimums.chunks_exact_mut(LEN / SUB);
    for (((block, q), scales), minimums) in blocks.iter().zip(q).zip(scales).zip(minimums) {
        read(block, q, &mut Subs { scales, minimums });
    }
}

/// Unpacks a row of a format with levels.
#[inline(always)]
pub(super) fn unpack_row(format: PackedFormat, bytes: &[u8], out: &mut [f32]) {
    let offset = f32::from(offset(format).unwrap_or(0));
    let (mut q, mut scales, mut minimums) = ([0; CHUNK], [0.0; CHUNK / SUB], [0.0; CHUNK / SUB]);
    let chunks = bytes.chunks(format.row_bytes(CHUNK));
    for (bytes, out) in chunks.zip(out.chunks_mut(CHUNK)) {
        let subs = Subs {
            scales: &mut scales,
            minimums: &mut minimums,
        };
        read(format, bytes, &mut q, subs);
        let (q, _) = q.as_chunks::<SUB>();
        for (((out, q), scale), minimum) in out.chunks_mut(SUB).zip(q).zip(&scales).zip(&minimums) {
            for (out, q) in out.iter_mut().zip(q) {
                *out = scale * (f32::from(*q) - offset) - minimum;
            }
        }
    }
}
