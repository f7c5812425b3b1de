//! Storage format of cached keys and values.

use emberlm_kernels::{Backend, PackedFormat};

use crate::error::CacheFormatError;
use crate::nn::attention::Mechanism;
use crate::nn::stack::StackConfig;

emberlm_system::named! {
    /// Storage format of cached keys and values. Linear attention's sums are f32 in every format, and so are the keys and
    /// values of cross-attentions.
    ///
    /// | format | bytes per element | an element |
    /// |---|---|---|
    /// | f32 | 4 | exact |
    /// | f16 | 2 | rounded to 11 bits; magnitudes above 65504 become infinite |
    /// | q8 | 1.0625 | `d q` with int8 `q`, and an f16 scale `d` per 32 elements of a head |
    #[derive(Default)]
    pub enum CacheFormat {
        /// f32, as the keys and values are computed.
        #[default]
        F32 = "f32",
        /// IEEE half precision.
        F16 = "f16",
        /// Symmetric int8 in blocks of 32 elements: [`PackedFormat::Q8_0`].
        Q8 = "q8",
    }
}

impl CacheFormat {
    /// The format of the packed vectors; `None` if they are f32.
    pub const fn packed(self) -> Option<PackedFormat> {
        match self {
            Self::F32 => None,
            Self::F16 => Some(PackedFormat::F16),
            Self::Q8 => Some(PackedFormat::Q8_0),
        }
    }

    /// Bytes of the keys or values of one head and token.
    pub const fn vector_bytes(self, head_dim: usize) -> usize {
        match self.packed() {
            None => 4 * head_dim,
            Some(format) => format.row_bytes(head_dim),
        }
    }

    /// Checks that a backend can hold keys and values in this format in fewer bytes than in f32.
    ///
    /// # Errors
    /// The backend has no kernels for packed keys and values.
    pub fn check_backend<B: Backend>(self) -> Result<(), CacheFormatError> {
        match self == Self::F32 || B::packs_tokens() {
            true => Ok(()),
            false => Err(CacheFormatError::Backend {
                format: self.name(),
            }),
        }
    }

    /// Checks that the keys and values of a stack can be stored in this format.
    ///
    /// # Errors
    /// The head dimension is not a multiple of the format's block length.
    pub(crate) fn check_stack(self, stack: &StackConfig) -> Result<(), CacheFormatError> {
        let attention = &stack.block.attention;
        let block = self.packed().map_or(1, PackedFormat::block_len);
        let ([_, width], _) = attention.cached();
        match attention.mechanism {
            Mechanism::Softmax { .. } if !width.is_multiple_of(block) => {
                Err(CacheFormatError::HeadDim {
                    format: self.name(),
                    head_dim: width,
                    block,
                })
            }
            Mechanism::Softmax { .. } | Mechanism::Linear { .. } | Mechanism::Delta(_) => Ok(()),
        }
    }
}
