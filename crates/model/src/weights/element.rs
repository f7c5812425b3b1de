//! Element types of weight files.

use emberlm_kernels::PackedFormat;
use half::{bf16, f16};
use safetensors::Dtype;
use serde::{Deserialize, Serialize};

emberlm_system::named! {
    /// Element type of stored weights, narrowest first.
    #[derive(PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Element {
        /// bfloat16: 16 bits with an 8-bit exponent.
        Bf16 = "bf16",
        /// IEEE half precision: 16 bits with a 5-bit exponent.
        F16 = "f16",
        /// IEEE single precision.
        F32 = "f32",
    }
}

impl Element {
    /// Name in PyTorch and in Hugging Face configurations.
    pub const fn torch_name(self) -> &'static str {
        match self {
            Self::Bf16 => "bfloat16",
            Self::F16 => "float16",
            Self::F32 => "float32",
        }
    }

    /// The format of packed weights with the same bits; `None` for f32.
    pub(crate) const fn packed_format(self) -> Option<PackedFormat> {
        match self {
            Self::Bf16 => Some(PackedFormat::Bf16),
            Self::F16 => Some(PackedFormat::F16),
            Self::F32 => None,
        }
    }

    /// Bytes per element.
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

    /// Decodes little-endian bytes and appends the values. The conversion to f32 is exact.
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

    /// Writes a value as element `index`, rounded to nearest, ties to even.
    pub(crate) fn write(self, value: f32, bytes: &mut [u8], index: usize) {
        let at = index * self.size();
        match self {
            Self::Bf16 => {
                bytes[at..at + 2].copy_from_slice(&bf16::from_f32(value).to_le_bytes());
            }
            Self::F16 => bytes[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes()),
            Self::F32 => bytes[at..at + 4].copy_from_slice(&value.to_le_bytes()),
        }
    }
}
