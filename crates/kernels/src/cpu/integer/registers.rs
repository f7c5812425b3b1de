//! The registers of x86-64 that hold 256 weights of a row: the order of their levels, and the bytes that they are read from.

use super::layout::{Order, STEPS, order};
use super::{Rounded, STEP, SUB};
use crate::PackedFormat;

/// Bytes that may be read for a chunk, whatever its format: with those that follow it.
pub(super) const READ: usize = 320;
/// The distance of prefetching in bytes.
pub(super) const AHEAD: usize = 4096;

/// The sub-block in each quarter of each register.
pub(super) const fn sub_blocks(order: Order) -> [[usize; 4]; 4] {
    match order {
        Order::Weights => [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]],
        Order::Halves => [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]],
    }
}

/// Calls a function whose last generic parameter is the number of a format with levels.
macro_rules! with_format {
    ($format:expr, $call:ident($($parameter:expr),*; $($argument:expr),*)) => {
        match $format {
            PackedFormat::Int8 | PackedFormat::F16 | PackedFormat::Bf16 => {}
            PackedFormat::Q8_0 => $call::<$({ $parameter },)* { format::Q8_0 }>($($argument),*),
            PackedFormat::Q4_0 => $call::<$({ $parameter },)* { format::Q4_0 }>($($argument),*),
            PackedFormat::Q4_1 => $call::<$({ $parameter },)* { format::Q4_1 }>($($argument),*),
            PackedFormat::Q5_0 => $call::<$({ $parameter },)* { format::Q5_0 }>($($argument),*),
            PackedFormat::Q5_1 => $call::<$({ $parameter },)* { format::Q5_1 }>($($argument),*),
            PackedFormat::Iq4Nl => $call::<$({ $parameter },)* { format::IQ4_NL }>($($argument),*),
            PackedFormat::Mxfp4 => $call::<$({ $parameter },)* { format::MXFP4 }>($($argument),*),
            PackedFormat::Q2K => $call::<$({ $parameter },)* { format::Q2_K }>($($argument),*),
            PackedFormat::Q3K => $call::<$({ $parameter },)* { format::Q3_K }>($($argument),*),
            PackedFormat::Q4K => $call::<$({ $parameter },)* { format::Q4_K }>($($argument),*),
            PackedFormat::Q5K => $call::<$({ $parameter },)* { format::Q5_K }>($($argument),*),
            PackedFormat::Q6K => $call::<$({ $parameter },)* { format::Q6_K }>($($argument),*),
        }
    };
}
pub(super) use with_format;

/// Reads a chunk of a format with the functions of the calling module, which are named like this macro's. Both modules of
/// x86-64 have them for their registers, so that the places of a format's fields are written once.
macro_rules! read_chunk {
    (
        $format:expr, $bytes:ident, $zero:ident,
        eight_bits: $eight_bits:expr,
        by_table: ($codes:ident, $table:ident) => $by_table:expr,
        none: $none:expr
    ) => {
        match $format {
            format::Q8_0 => Chunk {
                levels: $eight_bits,
                scales: halves::<34, 0>($bytes),
                minimums: $zero,
            },
            format::Q4_0 => Chunk {
                levels: nibbles::<18, 2>($bytes),
                scales: halves::<18, 0>($bytes),
                minimums: $zero,
            },
            format::Q4_1 => Chunk {
                levels: nibbles::<20, 4>($bytes),
                scales: halves::<20, 0>($bytes),
                minimums: negative(halves::<20, 2>($bytes)),
            },
            format::Q5_0 => Chunk {
                levels: with_fifth_bits::<22, 2>(nibbles::<22, 6>($bytes), $bytes),
                scales: halves::<22, 0>($bytes),
                minimums: $zero,
            },
            format::Q5_1 => Chunk {
                levels: with_fifth_bits::<24, 4>(nibbles::<24, 8>($bytes), $bytes),
                scales: halves::<24, 0>($bytes),
                minimums: negative(halves::<24, 2>($bytes)),
            },
            format::IQ4_NL => {
                let ($codes, $table) = (nibbles::<18, 2>($bytes), &nonlinear::LEVELS);
                Chunk {
                    levels: $by_table,
                    scales: halves::<18, 0>($bytes),
                    minimums: $zero,
                }
            }
            format::MXFP4 => {
                let ($codes, $table) = (nibbles::<17, 1>($bytes), &fp4::LEVELS);
                Chunk {
                    levels: $by_table,
                    scales: powers_of_two(exponents($bytes)),
                    minimums: $zero,
                }
            }
            format::Q2_K => {
                let (scales, minimums) = four_bit_subs($bytes);
                Chunk {
                    levels: pairs($bytes, 16),
                    scales: scaled(half($bytes, 80), unsigned(scales)),
                    minimums: scaled(half($bytes, 82), unsigned(minimums)),
                }
            }
            format::Q3_K => Chunk {
                levels: with_bits::<4>(pairs($bytes, 32), $bytes, 0),
                scales: scaled(half($bytes, 108), signed(signed_six_bit_subs($bytes))),
                minimums: $zero,
            },
            format::Q4_K => {
                let (scales, minimums) = six_bit_subs($bytes);
                Chunk {
                    levels: wide_nibbles($bytes, 16),
                    scales: scaled(half($bytes, 0), unsigned(scales)),
                    minimums: scaled(half($bytes, 2), unsigned(minimums)),
                }
            }
            format::Q5_K => {
                let (scales, minimums) = six_bit_subs($bytes);
                Chunk {
                    levels: with_bits::<16>(wide_nibbles($bytes, 48), $bytes, 16),
                    scales: scaled(half($bytes, 0), unsigned(scales)),
                    minimums: scaled(half($bytes, 2), unsigned(minimums)),
                }
            }
            format::Q6_K => Chunk {
                levels: six_bits($bytes),
                scales: scaled(half($bytes, 208), signed(sixteen($bytes, 192))),
                minimums: $zero,
            },
            // Formats without levels are not multiplied in integers.
            _ => Chunk {
                levels: $none,
                scales: $zero,
                minimums: $zero,
            },
        }
    };
}
pub(super) use read_chunk;

/// The bytes of a chunk that begins at `at`, followed by any others. At the end of `bytes` they are copied to `copy`.
#[inline(always)]
pub(super) fn bytes_at<'a>(bytes: &'a [u8], at: usize, copy: &'a mut [u8; READ]) -> &'a [u8; READ] {
    let bytes = bytes.get(at..).unwrap_or_default();
    match bytes.first_chunk() {
        Some(bytes) => bytes,
        None => {
            copy.fill(0);
            copy[..bytes.len()].copy_from_slice(bytes);
            copy
        }
    }
}

/// Moves the elements of x to the order of a format's levels.
pub(super) fn reorder(x: &mut [Rounded], format: PackedFormat) {
    let order = order(format as u8);
    if order == Order::Weights {
        return;
    }
    for chunk in x.iter_mut().flat_map(|x| &mut x.chunks) {
        let mut values = [[0; STEP]; STEPS];
        let (quarters, _) = values.as_flattened_mut().as_chunks_mut::<SUB>();
        for (quarter, sub) in quarters.iter_mut().zip(sub_blocks(order).as_flattened()) {
            *quarter = chunk.subs()[*sub];
        }
        chunk.values = values;
    }
}

/// The sub-block of each lane of a register. A lane of 32 bits sums 4 products, so 4 lanes have the same scale.
pub(super) const fn lanes(order: Order) -> [[u32; 16]; STEPS] {
    let subs = sub_blocks(order);
    let mut lanes = [[0; 16]; STEPS];
    let mut at = 0;
    while at < 16 * STEPS {
        lanes[at / 16][at % 16] = subs[at / 16][at % 16 / 4] as u32;
        at += 1;
    }
    lanes
}
