//! The formats of 16 bits, whose values are converted to f32, which is exact, and multiplied in f32.

use super::blocks::float::{bf16_to_f32, f16_to_f32};
use super::few_rows::Values;

/// Values in f16.
pub(super) struct F16;

/// Values in bf16.
pub(super) struct Bf16;

impl Values for F16 {
    type Stored = [u8; 2];

    #[inline(always)]
    fn split(row: &[u8]) -> (f32, &[Self::Stored]) {
        (1.0, row.as_chunks().0)
    }

    #[inline(always)]
    fn value(stored: Self::Stored) -> f32 {
        f16_to_f32(u16::from_le_bytes(stored))
    }
}

impl Values for Bf16 {
    type Stored = [u8; 2];

    #[inline(always)]
    fn split(row: &[u8]) -> (f32, &[Self::Stored]) {
        (1.0, row.as_chunks().0)
    }

    #[inline(always)]
    fn value(stored: Self::Stored) -> f32 {
        bf16_to_f32(u16::from_le_bytes(stored))
    }
}
