//! Element types of tensors.

/// Element type of a tensor. A row is a sequence of blocks of consecutive elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorType {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// 8-bit integers and an f16 scale.
    Q8_0,
    /// 4-bit integers and an f16 scale.
    Q4_0,
    /// 4-bit integers, an f16 scale and an f16 minimum.
    Q4_1,
    /// 5-bit integers and an f16 scale.
    Q5_0,
    /// 5-bit integers, an f16 scale and an f16 minimum.
    Q5_1,
    /// 2-bit integers; 4-bit scales and minima of 16 elements each.
    Q2K,
    /// 3-bit integers; 6-bit scales of 16 elements each.
    Q3K,
    /// 4-bit integers; 6-bit scales and minima of 32 elements each.
    Q4K,
    /// 5-bit integers; 6-bit scales and minima of 32 elements each.
    Q5K,
    /// 6-bit integers; 8-bit scales of 16 elements each.
    Q6K,
    /// 4-bit indices of a table of 16 values, and an f16 scale.
    Iq4Nl,
    /// 4-bit floating-point numbers, and a power of two as the scale.
    Mxfp4,
}

/// Types of the format that are not supported: number, name.
const UNSUPPORTED: [(u32, &str); 19] = [
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (40, "NVFP4"),
    (41, "Q1_0"),
];

impl TensorType {
    /// Every supported type.
    pub const ALL: [Self; 15] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
        Self::Iq4Nl,
        Self::Mxfp4,
    ];

    /// The number in files.
    pub const fn id(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Bf16 => 30,
            Self::Q8_0 => 8,
            Self::Q4_0 => 2,
            Self::Q4_1 => 3,
            Self::Q5_0 => 6,
            Self::Q5_1 => 7,
            Self::Q2K => 10,
            Self::Q3K => 11,
            Self::Q4K => 12,
            Self::Q5K => 13,
            Self::Q6K => 14,
            Self::Iq4Nl => 20,
            Self::Mxfp4 => 39,
        }
    }

    /// The name in llama.cpp.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::Q8_0 => "Q8_0",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q2K => "Q2_K",
            Self::Q3K => "Q3_K",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
            Self::Iq4Nl => "IQ4_NL",
            Self::Mxfp4 => "MXFP4",
        }
    }

    /// Number of elements per block.
    pub const fn block_len(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
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

    /// Size of a block in bytes.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
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

    /// Size in bytes of a row of `columns` elements; `None` if the row is not made of whole blocks, or too large.
    pub fn row_bytes(self, columns: usize) -> Option<usize> {
        match columns.is_multiple_of(self.block_len()) {
            true => (columns / self.block_len()).checked_mul(self.block_bytes()),
            false => None,
        }
    }

    /// Finds a type by its number.
    ///
    /// # Errors
    /// The type is not supported; the error has its name or its number.
    pub fn from_id(id: u32) -> Result<Self, String> {
        if let Some(found) = Self::ALL.into_iter().find(|kind| kind.id() == id) {
            return Ok(found);
        }
        let known = UNSUPPORTED.into_iter().find(|(number, _)| *number == id);
        let name = known.map_or_else(|| format!("number {id}"), |(_, name)| name.to_owned());
        let supported = Self::ALL.map(Self::name).join(", ");
        Err(format!(
            "its type {name} is not supported; supported are {supported}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_made_of_whole_blocks() {
        assert_eq!(TensorType::Q4_1.row_bytes(64), Some(40));
        assert_eq!(TensorType::Q4K.row_bytes(255), None);
        assert_eq!(TensorType::F32.row_bytes(usize::MAX), None);
    }

    #[test]
    fn unsupported_types_are_named() {
        let error = |id| TensorType::from_id(id).unwrap_err();
        assert!(error(23).starts_with("its type IQ4_XS is not supported"));
        assert!(error(4).starts_with("its type number 4 is not supported"));
    }
}
