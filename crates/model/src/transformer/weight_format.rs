//! Storage format of a decoder's weights: f32 or packed for inference.

use emberlm_kernels::{Backend, PackedFormat, PackedWeight};

use crate::error::WeightsError;
use crate::nn::packed_rows::PackedRows;
use crate::transformer::model::Transformer;

/// Storage format of the linear layers' weights and the head. Embeddings, norms and biases are always f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightFormat {
    /// f32, as in training.
    #[default]
    F32,
    /// The linear layers and the head are packed into fewer bits, which reduces memory and the bytes read per token.
    Packed(PackedFormat),
    /// The blocks' linear layers are packed and the head is f32, as is usual in published quantized models.
    PackedLayers(PackedFormat),
    /// Each matrix is as it is stored: packed, in formats that may differ, in 16 bits or in f32.
    Stored(StoredFormats),
}

/// The formats of weights as they are stored; `None` is f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredFormats {
    /// The format of most elements of the blocks' linear layers.
    pub layers: PackedFormat,
    /// The format of the embedding.
    pub embedding: Option<PackedFormat>,
    /// The format of the head, which is the embedding's if they are tied.
    pub head: Option<PackedFormat>,
}

impl WeightFormat {
    /// Every format available on the command line.
    pub const ALL: [Self; 1 + PackedFormat::ALL.len()] = {
        let mut all = [Self::F32; 1 + PackedFormat::ALL.len()];
        let mut at = 0;
        while at < PackedFormat::ALL.len() {
            all[at + 1] = Self::Packed(PackedFormat::ALL[at]);
            at += 1;
        }
        all
    };

    /// Symmetric int8 with one scale per output.
    pub const INT8: Self = Self::Packed(PackedFormat::Int8);

    /// The name on the command line, or that of most packed layers' format.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Packed(format) | Self::PackedLayers(format) => format.name(),
            Self::Stored(formats) => formats.layers.name(),
        }
    }

    /// The packed format of the blocks' linear layers, or of most of them; `None` if they are f32.
    pub const fn layers(self) -> Option<PackedFormat> {
        match self {
            Self::F32 => None,
            Self::Packed(format) | Self::PackedLayers(format) => Some(format),
            Self::Stored(formats) => Some(formats.layers),
        }
    }

    /// The packed format of the head; `None` if it is f32.
    pub const fn head(self) -> Option<PackedFormat> {
        match self {
            Self::Packed(format) => Some(format),
            Self::F32 | Self::PackedLayers(_) => None,
            Self::Stored(formats) => formats.head,
        }
    }

    /// The packed format of the embedding; `None` if it is f32.
    pub const fn embedding(self) -> Option<PackedFormat> {
        match self {
            Self::Stored(formats) => formats.embedding,
            Self::F32 | Self::Packed(_) | Self::PackedLayers(_) => None,
        }
    }

    /// The format that weights are converted to. Those that are kept as stored are not converted.
    const fn target(self) -> Self {
        match self {
            Self::Stored(_) => Self::F32,
            format => format,
        }
    }
}

impl<B: Backend> Transformer<B> {
    /// Packs the weights of the blocks' linear layers and the head, layer by layer: the f32 values of one layer are
    /// freed before the next is packed. A tied embedding table stays in f32 for lookups.
    ///
    /// Packed weights are not parameters: they are not trained, and checkpoints cannot store them, but Hugging Face
    /// directories can store int8 ([`crate::hugging_face::export`]).
    ///
    /// # Errors
    /// Those of [`Self::with_weights`].
    pub fn packed(self, format: PackedFormat) -> Result<Self, WeightsError> {
        self.with_weights(WeightFormat::Packed(format))
    }

    /// Converts the weights to a format. Packed weights stay packed.
    ///
    /// # Errors
    /// Those of [`Self::check_format`].
    pub fn with_weights(mut self, format: WeightFormat) -> Result<Self, WeightsError> {
        self.check_format(format)?;
        let format = format.target();
        if let Some(format) = format.layers() {
            self.linears_mut().for_each(|linear| linear.pack(format));
        }
        if let Some(format) = format.head() {
            let head = self.table().packed(format);
            self.lm_head.head = Some(head);
        }
        Ok(self)
    }

    /// Checks that the weights can be converted to a format.
    ///
    /// # Errors
    /// The row length of a weight, the layer's input width, is not a multiple of the format's block length.
    pub fn check_format(&self, format: WeightFormat) -> Result<(), WeightsError> {
        let check = |format: PackedFormat, path: &str, columns| {
            format
                .check_columns(columns)
                .map_err(|source| WeightsError::Packing {
                    name: path.to_owned(),
                    source,
                })
        };
        let format = format.target();
        if let Some(format) = format.layers() {
            for (path, linear) in self.linears() {
                check(format, &format!("{path}.weight"), linear.shape()[0])?;
            }
        }
        match format.head() {
            Some(format) => check(format, "head", self.config().d_model()),
            None => Ok(()),
        }
    }

    /// The format of the weights.
    pub fn weight_format(&self) -> WeightFormat {
        let head = self.table().packed_format();
        let embedding = self.embeddings.tokens.packed_format();
        let parts = self
            .linears()
            .filter_map(|(_, linear)| linear.packed())
            .flat_map(PackedRows::parts);
        let mut formats = parts.map(PackedWeight::format);
        let Some(layers) = formats.next().or(head) else {
            return WeightFormat::F32;
        };
        let is_one = formats.all(|format| format == layers);
        match (is_one && embedding.is_none(), head) {
            (true, Some(head)) if head == layers => WeightFormat::Packed(layers),
            (true, None) => WeightFormat::PackedLayers(layers),
            _ => WeightFormat::Stored(StoredFormats {
                layers,
                embedding,
                head,
            }),
        }
    }

    /// The format of packed weights; `None` if all weights are parameters.
    pub fn packed_format(&self) -> Option<PackedFormat> {
        self.weight_format().layers()
    }

    /// Checks that no weight is packed, as checkpoints require.
    ///
    /// # Errors
    /// A weight is packed.
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
    use crate::families;
    use crate::params::named_tensors;
    use crate::transformer::checked::TransformerConfig;

    #[test]
    fn widths_that_are_no_multiple_of_a_block_are_refused() {
        let mut raw = families::preset("char-nano").unwrap().config;
        (raw.vocab_size, raw.seq_len, raw.d_model) = (Some(31), 8, 48);
        (raw.n_layers, raw.heads) = (1, 2);
        let config = TransformerConfig::try_from(raw).unwrap();
        let decoder = config.init::<Flex>(3, &Default::default());
        let refused = decoder.packed(PackedFormat::Q4_0).unwrap_err().to_string();
        assert_eq!(
            refused,
            "`blocks.0.attention.qkv.weight`: rows of 48 weights cannot be packed as q4_0: must be a multiple of 32"
        );
    }

    #[test]
    fn packing_frees_f32_weights_of_linear_layers() {
        for tied in [true, false] {
            let mut raw = families::preset("char-nano").unwrap().config;
            (raw.vocab_size, raw.seq_len, raw.d_model) = (Some(31), 8, 16);
            (raw.n_layers, raw.heads) = (2, 2);
            raw.head.tied = tied;
            let config = TransformerConfig::try_from(raw).unwrap();
            let decoder = config.init::<Flex>(3, &Default::default());
            assert_eq!(decoder.packed_format(), None);
            let decoder = decoder.packed(PackedFormat::Int8).unwrap();
            assert_eq!(decoder.packed_format(), Some(PackedFormat::Int8));
            let refused = decoder.check_not_packed().unwrap_err().to_string();
            assert!(refused.contains("packed as int8"), "{refused}");
            assert_eq!(
                decoder.reconfigured(&config).unwrap().packed_format(),
                Some(PackedFormat::Int8)
            );
            for (path, tensor) in named_tensors(&decoder) {
                let is_table = path.starts_with("tokens") || path.starts_with("positions");
                assert!(tensor.shape.len() == 1 || is_table, "{path}");
            }
        }
    }
}
