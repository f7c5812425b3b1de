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
    /// The linear layers and the head packed in fewer bits: less memory, and less of it is read for a token.
    Packed(PackedFormat),
    /// The blocks' linear layers packed, and the head in f32, as published quantized models have it.
    PackedLayers(PackedFormat),
}

impl WeightFormat {
    /// Every format that the command line takes.
    pub const ALL: [Self; 2] = [Self::F32, Self::INT8];

    /// Symmetric int8 with a scale for each output.
    pub const INT8: Self = Self::Packed(PackedFormat::Int8);

    /// The name on the command line, or of the packed layers.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Packed(format) | Self::PackedLayers(format) => format.name(),
        }
    }

    /// The format of the blocks' linear layers; none where they are in f32.
    pub const fn layers(self) -> Option<PackedFormat> {
        match self {
            Self::F32 => None,
            Self::Packed(format) | Self::PackedLayers(format) => Some(format),
        }
    }

    /// The format of the head; none where it is in f32.
    pub const fn head(self) -> Option<PackedFormat> {
        match self {
            Self::Packed(format) => Some(format),
            Self::F32 | Self::PackedLayers(_) => None,
        }
    }
}

impl<B: Backend> Decoder<B> {
    /// The decoder with the weights of the blocks' linear layers and of the head packed, layer by layer: the floats of one
    /// layer are freed before the next is packed. A tied embedding table stays in f32 for lookups.
    ///
    /// Packed weights are no parameters: they are not trained, and no checkpoint holds them. A Hugging Face directory does
    /// ([`crate::hugging_face::export`]).
    pub fn packed(self, format: PackedFormat) -> Self {
        self.with_weights(WeightFormat::Packed(format))
    }

    /// The decoder with its weights in a format. Weights that are packed stay packed.
    pub fn with_weights(mut self, format: WeightFormat) -> Self {
        if let Some(format) = format.layers() {
            self.linears_mut().for_each(|linear| linear.pack(format));
        }
        if let Some(format) = format.head() {
            let head = self.table().packed(format);
            self.lm_head.head = Some(head);
        }
        self
    }

    /// The format of its weights.
    pub fn weight_format(&self) -> WeightFormat {
        let layers = self.linears().find_map(|(_, linear)| linear.packed());
        match (self.table().packed_format(), layers) {
            (Some(format), _) => WeightFormat::Packed(format),
            (None, Some(layers)) => WeightFormat::PackedLayers(layers.format()),
            (None, None) => WeightFormat::F32,
        }
    }

    /// The format of its packed weights; none where all weights are parameters.
    pub fn packed_format(&self) -> Option<PackedFormat> {
        self.weight_format().layers()
    }

    /// Checks that all weights are parameters, as a checkpoint holds them.
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
