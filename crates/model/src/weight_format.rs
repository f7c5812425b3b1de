//! The number format that a decoder holds its weights in for prediction.

use emberlm_kernels::{Backend, PackedFormat};

use crate::decoder::Decoder;
use crate::error::WeightsError;

/// The number format of the linear layers' weights and the head. Embeddings, norms and biases are f32 in either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightFormat {
    /// As they are trained.
    #[default]
    F32,
    /// Packed in fewer bits: less memory, and less of it is read for a token.
    Packed(PackedFormat),
}

impl WeightFormat {
    /// Every format.
    pub const ALL: [Self; 2] = [Self::F32, Self::INT8];

    /// Symmetric int8 with a scale for each output.
    pub const INT8: Self = Self::Packed(PackedFormat::Int8);

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Packed(format) => format.name(),
        }
    }
}

impl<B: Backend> Decoder<B> {
    /// The decoder with the weights of the blocks' linear layers and of the head packed, layer by layer: the floats of one
    /// layer are freed before the next is packed. A tied embedding table stays in f32 for lookups.
    ///
    /// Packed weights are no parameters: they are not trained, and saving the decoder is an error.
    pub fn packed(mut self, format: PackedFormat) -> Self {
        self.linears_mut().for_each(|linear| linear.pack(format));
        let head = self.table().packed(format);
        self.lm_head.head = Some(head);
        self
    }

    /// The decoder with its weights in a format: [`Decoder::packed`], or as it is.
    pub fn with_weights(self, format: WeightFormat) -> Self {
        match format {
            WeightFormat::F32 => self,
            WeightFormat::Packed(format) => self.packed(format),
        }
    }

    /// The format of its packed weights; none where all weights are parameters.
    pub fn packed_format(&self) -> Option<PackedFormat> {
        self.table().packed_format()
    }

    /// Checks that all weights are parameters, so that the decoder can be saved.
    ///
    /// # Errors
    /// They are packed.
    pub fn check_not_packed(&self) -> Result<(), WeightsError> {
        match self.packed_format() {
            Some(format) => Err(WeightsError::Packed {
                format: format.name(),
            }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use burn_flex::Flex;

    use super::*;
    use crate::checked::DecoderConfig;
    use crate::families;
    use crate::weights::named_tensors;

    #[test]
    fn packing_frees_the_floats_of_the_linear_layers() {
        for tied in [true, false] {
            let mut raw = families::preset("char-nano").unwrap().config;
            (raw.vocab_size, raw.seq_len, raw.d_model) = (Some(31), 8, 16);
            (raw.n_layers, raw.heads) = (2, 2);
            raw.head.tied = tied;
            let config = DecoderConfig::try_from(raw).unwrap();
            let decoder = config.init::<Flex>(3, &Default::default());
            assert_eq!(decoder.packed_format(), None);
            let decoder = decoder.packed(PackedFormat::Int8);
            assert_eq!(decoder.packed_format(), Some(PackedFormat::Int8));
            let refused = decoder.check_not_packed().unwrap_err().to_string();
            assert!(refused.contains("packed as int8"), "{refused}");
            assert!(decoder.reconfigured(&config).is_err());
            for (path, tensor) in named_tensors(&decoder) {
                let is_table = path.starts_with("tokens") || path.starts_with("positions");
                assert!(tensor.shape.len() == 1 || is_table, "{path}");
            }
        }
    }
}
