//! Mapping between a family's models and Hugging Face's `config.json` and tensor names.
//!
//! `fields` reads the fields of a `config.json`, and `known_fields` lists those without an effect; `rope`, `layers`, `experts`,
//! `names` and `quantization` handle fields that several model types share. `encoder` and `t5` have the model types of
//! encoders and encoder–decoders; those of decoders are in their families.

pub(crate) mod encoder;
pub(crate) mod experts;
pub(crate) mod fields;
pub(crate) mod known_fields;
pub(crate) mod layers;
pub(crate) mod names;
pub(crate) mod quantization;
pub(crate) mod rope;
pub(crate) mod t5;

use serde_json::{Map, Value};

use self::encoder::HeadStyle;
use self::fields::Fields;
use crate::config::{Family, ModelConfig};
use crate::error::{HuggingFaceError, WeightsError};
use crate::transformer::checked::TransformerConfig;
use crate::transformer::reconfigure::TRAINING_ONLY;
use crate::weights::SafetensorsStore;
use crate::weights::map::Source;

/// Field of the padding token's id. In some model types its default is outside of a small vocabulary.
pub(crate) const PADDING: &str = "pad_token_id";

/// Representation of a family of decoders in Hugging Face directories.
#[derive(Clone, Copy)]
pub(crate) struct Exchange {
    /// Value of `model_type`.
    pub(crate) model_type: &'static str,
    /// Class of `transformers` that loads the model.
    pub(crate) architecture: &'static str,
    /// Prefix of all tensor names except the head's. Files saved without the head lack it.
    pub(crate) prefix: &'static str,
    /// Name of the embedding.
    pub(crate) embedding: &'static str,
    /// Name of the untied head.
    pub(crate) head: &'static str,
    /// Returns true if a tensor is not a weight, but a mask or rotary table that older versions saved.
    pub(crate) constant: fn(&str) -> bool,
    /// Reads the model configuration from a `config.json`.
    pub(crate) read: fn(&Fields<'_>) -> Result<ModelConfig, HuggingFaceError>,
    /// Writes the fields that describe a model. The export reads them back to detect settings that they cannot express.
    pub(crate) write: fn(&TransformerConfig) -> Map<String, Value>,
    /// Adds the parameters that the model type always has. They are zero and do not change the model's output.
    pub(crate) complete: fn(&mut ModelConfig),
    /// True if files may have blocks after those of the model, which predict further tokens and are not read.
    pub(crate) further_blocks: bool,
    /// The types of models for images and text whose text model may have this type.
    pub(crate) within: &'static [&'static str],
}

impl Exchange {
    /// A type that is also that of the text models within models of other types.
    pub(crate) const fn within(self, types: &'static [&'static str]) -> Self {
        Self {
            within: types,
            ..self
        }
    }

    /// A type whose files may have further blocks.
    pub(crate) const fn with_further_blocks(self) -> Self {
        Self {
            further_blocks: true,
            ..self
        }
    }
}

/// The properties of a model that follow from the tensors of its directory, because its `config.json` leaves them open.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FileFacts {
    /// There is a pooler.
    pub(crate) pooler: bool,
    /// There is a head that is not the embedding.
    pub(crate) untied_head: bool,
}

/// Reads the facts of a directory's tensors.
pub(crate) type ReadFacts = fn(&SafetensorsStore) -> Result<FileFacts, WeightsError>;

/// A model type of `transformers`: the representation of its models in Hugging Face directories. Parameters that are not
/// those of a decoder have defaults.
pub(crate) trait ModelType {
    /// Value of `model_type`.
    fn name(&self) -> &'static str;

    /// Class of `transformers` that loads the model.
    fn class(&self, config: &TransformerConfig) -> String;

    /// Prefix that the names of tensors have, unless the file is that of a bare model.
    fn prefix(&self) -> &'static str {
        ""
    }

    /// True if `transformers` writes the model without [`ModelType::prefix`].
    fn is_bare(&self, _config: &TransformerConfig) -> bool {
        false
    }

    /// The tensors of the parameter at `path`; `None` if files lack it.
    fn source(&self, config: &TransformerConfig, path: &str) -> Option<Source>;

    /// Returns true if a tensor is not a weight of the model, but one that `transformers` ignores, too.
    fn constant(&self, config: &TransformerConfig) -> Box<dyn Fn(&str) -> bool>;

    /// Tensors that some files store in addition to another one, of which they are copies: the copy, the original.
    fn tied(&self, config: &TransformerConfig) -> Vec<(&'static str, &'static str)>;

    /// The types of models for images and text whose text model may have this type.
    fn within(&self) -> &'static [&'static str] {
        &[]
    }

    /// Reads the facts of a directory's tensors; `None` if the type needs none.
    fn facts(&self) -> Option<ReadFacts> {
        None
    }

    /// Reads the model configuration from a `config.json`.
    fn read(&self, fields: &Fields<'_>, facts: FileFacts) -> Result<ModelConfig, HuggingFaceError>;

    /// The form of an encoder's heads.
    fn heads(&self, _fields: &Fields<'_>) -> Result<Option<HeadStyle>, HuggingFaceError> {
        Ok(None)
    }

    /// Writes the fields that describe a model. The export reads them back to detect settings that they cannot express.
    fn write(&self, config: &TransformerConfig, fields: &mut Map<String, Value>);

    /// Adds the parameters that the model type always has. They are zero and do not change the model's output.
    fn complete(&self, _config: &mut ModelConfig) {}

    /// The fields of a configuration that an export need not express.
    fn unwritten(&self) -> &'static [&'static str] {
        &[]
    }

    /// The names that a quantization's description needs; `None` if quantized models are not supported.
    fn quantized(&self) -> Option<&Exchange> {
        None
    }
}

/// The model type of a family of decoders.
pub(crate) struct DecoderType {
    pub(crate) family: Family,
    pub(crate) exchange: Exchange,
}

impl ModelType for DecoderType {
    fn name(&self) -> &'static str {
        self.exchange.model_type
    }

    fn class(&self, _config: &TransformerConfig) -> String {
        self.exchange.architecture.to_owned()
    }

    fn prefix(&self) -> &'static str {
        self.exchange.prefix
    }

    fn within(&self) -> &'static [&'static str] {
        self.exchange.within
    }

    fn source(&self, config: &TransformerConfig, path: &str) -> Option<Source> {
        self.family.source(config, path)
    }

    fn constant(&self, config: &TransformerConfig) -> Box<dyn Fn(&str) -> bool> {
        let Exchange {
            prefix,
            constant,
            further_blocks,
            ..
        } = self.exchange;
        let n_layers = config.n_layers();
        Box::new(move |name| {
            let block = name.strip_prefix(prefix).unwrap_or(name);
            let block = block.strip_prefix("layers.");
            let block = block.and_then(|block| block.split_once('.')?.0.parse::<usize>().ok());
            let is_further = block.is_some_and(|block| block >= n_layers);
            constant(name) || (further_blocks && is_further)
        })
    }

    fn tied(&self, config: &TransformerConfig) -> Vec<(&'static str, &'static str)> {
        match config.head().tied {
            true => vec![(self.exchange.head, self.exchange.embedding)],
            false => Vec::new(),
        }
    }

    fn read(
        &self,
        fields: &Fields<'_>,
        _facts: FileFacts,
    ) -> Result<ModelConfig, HuggingFaceError> {
        let rule = "attention in both directions is not computed";
        fields.only("is_causal", true, rule)?;
        if fields
            .object("per_layer_config")?
            .is_some_and(|layers| !layers.is_empty())
        {
            let rule = "settings that differ between layers are not supported";
            return Err(fields.error("per_layer_config", rule));
        }
        (self.exchange.read)(fields)
    }

    fn write(&self, config: &TransformerConfig, fields: &mut Map<String, Value>) {
        for (field, value) in (self.exchange.write)(config) {
            // A padding token that is given has precedence over a family's null.
            if field != PADDING || !fields.contains_key(PADDING) {
                fields.insert(field, value);
            }
        }
    }

    fn complete(&self, config: &mut ModelConfig) {
        (self.exchange.complete)(config);
    }

    fn unwritten(&self) -> &'static [&'static str] {
        &TRAINING_ONLY
    }

    fn quantized(&self) -> Option<&Exchange> {
        Some(&self.exchange)
    }
}
