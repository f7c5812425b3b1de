//! The types of numbers in weights files.

use half::{bf16, f16};
use safetensors::Dtype;
use serde::{Deserialize, Serialize};

/// A type of numbers that weights are read and written in; they are f32 in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    /// 16 bits, 8 of them the exponent.
    Bf16,
    /// 16 bits, 5 of them the exponent.
    F16,
    /// 32 bits.
    F32,
}

impl Element {
    /// Every one, the narrowest first.
    pub const ALL: [Self; 3] = [Self::Bf16, Self::F16, Self::F32];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::F32 => "f32",
        }
    }

    /// Its name in PyTorch and in Hugging Face's configurations.
    pub const fn torch_name(self) -> &'static str {
        match self {
            Self::Bf16 => "bfloat16",
            Self::F16 => "float16",
            Self::F32 => "float32",
        }
    }

    /// Bytes of a number.
    pub const fn size(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }

    pub(crate) fn of(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::BF16 => Some(Self::Bf16),
            Dtype::F16 => Some(Self::F16),
            Dtype::F32 => Some(Self::F32),
            _ => None,
        }
    }

    pub(crate) fn dtype(self) -> Dtype {
        match self {
            Self::Bf16 => Dtype::BF16,
            Self::F16 => Dtype::F16,
            Self::F32 => Dtype::F32,
        }
    }

    /// Appends the numbers that little-endian bytes are, each widened exactly.
    pub(crate) fn decode(self, bytes: &[u8], values: &mut Vec<f32>) {
        match self {
            Self::Bf16 => {
                let (numbers, _) = bytes.as_chunks::<2>();
                values.extend(numbers.iter().map(|&x| bf16::from_le_bytes(x).to_f32()));
            }
            Self::F16 => {
                let (numbers, _) = bytes.as_chunks::<2>();
                values.extend(numbers.iter().map(|&x| f16::from_le_bytes(x).to_f32()));
            }
            Self::F32 => {
                let (numbers, _) = bytes.as_chunks::<4>();
                values.extend(numbers.iter().map(|&x| f32::from_le_bytes(x)));
            }
        }
    }

    /// Writes a number at a place, rounded to the nearest, ties to even.
    pub(crate) fn write(self, value: f32, bytes: &mut [u8], place: usize) {
        let at = place * self.size();
        match self {
            Self::Bf16 => {
                bytes[at..at + 2].copy_from_slice(&bf16::from_f32(value).to_le_bytes());
            }
            Self::F16 => bytes[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes()),
            Self::F32 => bytes[at..at + 4].copy_from_slice(&value.to_le_bytes()),
        }
    }
}
