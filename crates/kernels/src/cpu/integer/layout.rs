//! The order in which 256 weights of a row are multiplied, which all instruction sets have in common.

use super::{STEP, SUB};
use crate::PackedFormat;

/// Weights per chunk.
pub(super) const LEN: usize = 256;
/// Groups of four weights per sub-block.
pub(super) const FOURS: usize = SUB / 4;
/// Steps per chunk.
pub(super) const STEPS: usize = LEN / STEP;

/// The order of the levels of a chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// That of the weights.
    Weights,
    /// For formats with blocks of 32. A register has the same half of four blocks, of 16 levels each, so that the second
    /// register has the same blocks in the same lanes as the first one, and the fourth the same as the third.
    Halves,
}

/// The order of the levels of a chunk that is read to registers.
pub(super) const fn order(format: u8) -> Order {
    match format {
        format::Q4_0
        | format::Q4_1
        | format::Q5_0
        | format::Q5_1
        | format::IQ4_NL
        | format::MXFP4 => Order::Halves,
        _ => Order::Weights,
    }
}

/// A [`PackedFormat`] as a parameter of functions.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(super) mod format {
    use super::PackedFormat;

    pub(in super::super) const Q8_0: u8 = PackedFormat::Q8_0 as u8;
    pub(in super::super) const Q4_0: u8 = PackedFormat::Q4_0 as u8;
    pub(in super::super) const Q4_1: u8 = PackedFormat::Q4_1 as u8;
    pub(in super::super) const Q5_0: u8 = PackedFormat::Q5_0 as u8;
    pub(in super::super) const Q5_1: u8 = PackedFormat::Q5_1 as u8;
    pub(in super::super) const IQ4_NL: u8 = PackedFormat::Iq4Nl as u8;
    pub(in super::super) const MXFP4: u8 = PackedFormat::Mxfp4 as u8;
    pub(in super::super) const Q2_K: u8 = PackedFormat::Q2K as u8;
    pub(in super::super) const Q3_K: u8 = PackedFormat::Q3K as u8;
    pub(in super::super) const Q4_K: u8 = PackedFormat::Q4K as u8;
    pub(in super::super) const Q5_K: u8 = PackedFormat::Q5K as u8;
    pub(in super::super) const Q6_K: u8 = PackedFormat::Q6K as u8;
}

/// Formats whose sub-blocks of 16 have different scales. Those of the others have the same scale in pairs.
pub(super) const fn is_fine(format: u8) -> bool {
    matches!(format, format::Q2_K | format::Q3_K | format::Q6_K)
}

/// Formats with 8-bit levels, whose offset is 128. The levels of the others are below 64.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) const fn has_eight_bits(format: u8) -> bool {
    matches!(format, format::Q8_0 | format::IQ4_NL)
}

/// The number of chains of additions of a product of a few rows of x.
pub(super) const fn chains(rows: usize) -> usize {
    if rows > 2 { STEPS / 2 } else { STEPS }
}
