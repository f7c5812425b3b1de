//! Packed weights: matrices stored row by row in fewer bits than f32.
//!
//! A format divides each row into blocks of consecutive weights. A block is a sequence of bytes, scales included,
//! and its weights depend on nothing else. To add a format, add a variant here, its layout in `cpu/blocks` and, if
//! unpacking before each product is too slow, a kernel in `cpu/packed.rs`.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The storage format of a packed weight `[out, in]`.
///
/// All formats except [`Self::Int8`] are those of GGUF files, byte for byte.
///
/// | format | weights per block | bits per weight | a weight |
/// |---|---|---|---|
/// | int8 | a row | 8 and 32 per row | `d q` |
/// | f16, bf16 | 1 | 16 | rounded |
/// | q8_0 | 32 | 8.5 | `d q` |
/// | q4_0, q5_0 | 32 | 4.5, 5.5 | `d (q - 8)`, `d (q - 16)` |
/// | q4_1, q5_1 | 32 | 5, 6 | `d q + m` |
/// | iq4_nl | 32 | 4.5 | `d v[q]` with 16 unevenly spaced values `v` |
/// | mxfp4 | 32 | 4.25 | `d v[q]` with 4-bit floating-point numbers `v` and a power of two `d` |
/// | q2_k | 256 | 2.625 | `d s q - e t`, with 4-bit `s`, `t` per 16 weights |
/// | q3_k | 256 | 3.4375 | `d s (q - 4)`, with 6-bit `s` per 16 weights |
/// | q4_k, q5_k | 256 | 4.5, 5.5 | `d s q - e t`, with 6-bit `s`, `t` per 32 weights |
/// | q6_k | 256 | 6.5625 | `d s (q - 32)`, with 8-bit `s` per 16 weights |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PackedFormat {
    /// Symmetric int8 with one f32 scale per row: `W[j, l] ≈ scale[j] · q[j, l]` with `|q| ≤ 127` and
    /// `scale[j] = max |W[j, ·]| / 127`. The rounding error is at most half a scale. The scale precedes the values.
    #[serde(rename = "int8")]
    Int8,
    /// IEEE half precision. Magnitudes above 65504 become infinite.
    #[serde(rename = "f16")]
    F16,
    /// The upper half of an f32.
    #[serde(rename = "bf16")]
    Bf16,
    /// Symmetric 8 bits.
    #[serde(rename = "q8_0")]
    Q8_0,
    /// Symmetric 4 bits.
    #[serde(rename = "q4_0")]
    Q4_0,
    /// 4 bits with a minimum.
    #[serde(rename = "q4_1")]
    Q4_1,
    /// Symmetric 5 bits.
    #[serde(rename = "q5_0")]
    Q5_0,
    /// 5 bits with a minimum.
    #[serde(rename = "q5_1")]
    Q5_1,
    /// 4-bit indices of unevenly spaced values.
    #[serde(rename = "iq4_nl")]
    Iq4Nl,
    /// 4-bit floating-point numbers with powers of two as scales (OCP Microscaling FP4).
    #[serde(rename = "mxfp4")]
    Mxfp4,
    /// 2 bits with quantized scales and minimums.
    #[serde(rename = "q2_k")]
    Q2K,
    /// Symmetric 3 bits with quantized scales.
    #[serde(rename = "q3_k")]
    Q3K,
    /// 4 bits with quantized scales and minimums.
    #[serde(rename = "q4_k")]
    Q4K,
    /// 5 bits with quantized scales and minimums.
    #[serde(rename = "q5_k")]
    Q5K,
    /// Symmetric 6 bits with quantized scales.
    #[serde(rename = "q6_k")]
    Q6K,
}

/// Sizes that do not fit a [`PackedFormat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PackedError {
    /// The row length is not a multiple of the block length.
    #[error(
        "rows of {columns} weights cannot be packed as {format}: must be a multiple of {block}"
    )]
    RowLength {
        /// Name of the format.
        format: &'static str,
        /// Weights per row.
        columns: usize,
        /// Weights per block.
        block: usize,
    },
    /// The number of bytes is not that of the matrix.
    #[error("a {rows} × {columns} matrix in {format} has {expected} bytes (got {found})")]
    ByteCount {
        /// Name of the format.
        format: &'static str,
        /// Rows of the matrix.
        rows: usize,
        /// Weights per row.
        columns: usize,
        /// Bytes of the matrix.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
}

impl PackedFormat {
    /// Every format.
    pub const ALL: [Self; 15] = [
        Self::Int8,
        Self::F16,
        Self::Bf16,
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Iq4Nl,
        Self::Mxfp4,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
            Self::Q4_1 => "q4_1",
            Self::Q5_0 => "q5_0",
            Self::Q5_1 => "q5_1",
            Self::Iq4Nl => "iq4_nl",
            Self::Mxfp4 => "mxfp4",
            Self::Q2K => "q2_k",
            Self::Q3K => "q3_k",
            Self::Q4K => "q4_k",
            Self::Q5K => "q5_k",
            Self::Q6K => "q6_k",
        }
    }

    /// The number of weights per block, of which a row's length must be a multiple. It is 1 for int8, whose scale
    /// covers a row of any length.
    pub const fn block_len(self) -> usize {
        match self {
            Self::Int8 | Self::F16 | Self::Bf16 => 1,
            Self::Q8_0
            | Self::Q4_0
            | Self::Q4_1
            | Self::Q5_0
            | Self::Q5_1
            | Self::Iq4Nl
            | Self::Mxfp4 => 32,
            Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// The size of a block in bytes.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::Int8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::Q8_0 => 34,
            Self::Q4_0 | Self::Iq4Nl => 18,
            Self::Mxfp4 => 17,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q2K => 84,
            Self::Q3K => 110,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// The size of a row of `columns` weights in bytes.
    pub const fn row_bytes(self, columns: usize) -> usize {
        let scale = match self {
            Self::Int8 => size_of::<f32>(),
            _ => 0,
        };
        scale + columns / self.block_len() * self.block_bytes()
    }

    /// The size of a packed `[rows, columns]` matrix in bytes.
    pub const fn bytes(self, [rows, columns]: [usize; 2]) -> usize {
        rows * self.row_bytes(columns)
    }

    /// Checks that rows of `columns` weights can be packed.
    ///
    /// # Errors
    /// The length is not a multiple of [`Self::block_len`].
    pub const fn check_columns(self, columns: usize) -> Result<(), PackedError> {
        match columns.is_multiple_of(self.block_len()) {
            true => Ok(()),
            false => Err(PackedError::RowLength {
                format: self.name(),
                columns,
                block: self.block_len(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn int8_takes_a_byte_per_weight_and_a_scale_per_row() {
        assert_eq!(PackedFormat::Int8.bytes([3, 7]), 3 * 7 + 3 * 4);
    }

    #[test]
    fn row_lengths_must_be_multiples_of_the_block() {
        let refused = PackedFormat::Q4K.check_columns(128).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "rows of 128 weights cannot be packed as q4_k: must be a multiple of 256"
        );
        assert_eq!(PackedFormat::Q4K.check_columns(512), Ok(()));
        assert_eq!(PackedFormat::Int8.check_columns(7), Ok(()));
    }
}
