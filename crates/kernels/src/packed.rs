//! Packed weights: matrices stored row by row in fewer bits than f32.
//!
//! A format divides each row into blocks of consecutive weights. A block is a sequence of bytes plus an f32
//! scale, and its weights depend on nothing else. To add a format, add a variant here, its row format in
//! [`crate::cpu::packed`], its tensor operations in `reference/packed.rs` and, if unpacking block by block is too
//! slow, a kernel.

use serde::{Deserialize, Serialize};

/// The storage format of a packed weight `[out, in]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PackedFormat {
    /// Symmetric int8 with one scale per row: `W[j, l] ≈ scale[j] · q[j, l]` with `|q| ≤ 127` and
    /// `scale[j] = max |W[j, ·]| / 127`. The rounding error is at most half a scale.
    Int8,
}

impl PackedFormat {
    /// Every format.
    pub const ALL: [Self; 1] = [Self::Int8];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8",
        }
    }

    /// The number of consecutive weights that share a scale in a row of `columns` weights. The last block of a
    /// row may be shorter.
    pub const fn block_len(self, columns: usize) -> usize {
        match self {
            Self::Int8 => columns,
        }
    }

    /// The number of scales in a row of `columns` weights.
    pub const fn row_scales(self, columns: usize) -> usize {
        match columns {
            // An empty row keeps one scale, so the number of scales still gives the number of rows.
            0 => 1,
            columns => columns.div_ceil(self.block_len(columns)),
        }
    }

    /// The size of a row of `columns` weights in bytes, without its scales.
    pub const fn row_bytes(self, columns: usize) -> usize {
        match self {
            Self::Int8 => columns,
        }
    }

    /// The size of a packed `[rows, columns]` matrix in bytes, scales included.
    pub const fn bytes(self, [rows, columns]: [usize; 2]) -> usize {
        rows * (self.row_bytes(columns) + self.row_scales(columns) * size_of::<f32>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn int8_takes_a_byte_per_weight_and_a_scale_per_row() {
        let format = PackedFormat::Int8;
        assert_eq!(format.bytes([3, 7]), 3 * 7 + 3 * 4);
        assert_eq!(format.row_scales(0), 1);
    }
}
