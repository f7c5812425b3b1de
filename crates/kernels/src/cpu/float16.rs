//! The formats of 16 bits, whose values are converted to f32, which is exact.

#![allow(unsafe_code)]

use super::blocks::float::{bf16_to_f32, f16_to_f32};
use super::few_rows::Values;

/// A value in f16, as its bytes.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct F16([u8; 2]);

/// A value in bf16, as its bytes.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Bf16([u8; 2]);

impl F16 {
    /// The values of a packed matrix.
    pub(super) fn of_bytes(bytes: &[u8]) -> &[Self] {
        let (pairs, _) = bytes.as_chunks::<2>();
        // SAFETY: the type has the layout of a pair of bytes.
        unsafe { std::slice::from_raw_parts(pairs.as_ptr().cast(), pairs.len()) }
    }

    /// The f32. Exact.
    #[inline(always)]
    pub fn value(self) -> f32 {
        f16_to_f32(u16::from_le_bytes(self.0))
    }
}

impl Bf16 {
    /// The values of a packed matrix.
    pub(super) fn of_bytes(bytes: &[u8]) -> &[Self] {
        let (pairs, _) = bytes.as_chunks::<2>();
        // SAFETY: the type has the layout of a pair of bytes.
        unsafe { std::slice::from_raw_parts(pairs.as_ptr().cast(), pairs.len()) }
    }

    /// The f32. Exact.
    #[inline(always)]
    pub fn value(self) -> f32 {
        bf16_to_f32(u16::from_le_bytes(self.0))
    }
}

impl Values for F16 {
    type Stored = Self;

    #[inline(always)]
    fn split(row: &[u8]) -> (f32, &[Self]) {
        (1.0, Self::of_bytes(row))
    }

    #[inline(always)]
    fn value(stored: Self) -> f32 {
        stored.value()
    }
}

impl Values for Bf16 {
    type Stored = Self;

    #[inline(always)]
    fn split(row: &[u8]) -> (f32, &[Self]) {
        (1.0, Self::of_bytes(row))
    }

    #[inline(always)]
    fn value(stored: Self) -> f32 {
        stored.value()
    }
}
