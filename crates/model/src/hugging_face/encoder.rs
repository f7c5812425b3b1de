//! Reads Hugging Face directories of encoders.

mod export;

pub use export::{export, model_type_of};

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use serde_json::{Map, Value};

use emberlm_kernels::Backend;

use crate::config::difference::check_same;
use crate::error::{HuggingFaceError, WeightsError};
use crate::exchange::encoder::{EXCHANGES, EncoderExchange, HeadStyle};
use crate::exchange::fields::Fields;
use crate::exchange::{known_fields, quantization};
use crate::hugging_face::{check_size, in_weights, open_weights, read_fields};
use crate::transformer::checked::TransformerConfig;
use crate::transformer::encoder::{EncoderHeadConfig, EncoderSettings};
use crate::transformer::model::Transformer;
use crate::weights::map::Source;
use crate::weights::{Naming, SafetensorsStore, TensorStore, load, load_present, names};

/// A Hugging Face directory of an encoder whose configuration has been read.
#[derive(Debug)]
pub struct HuggingFaceEncoder {
    path: PathBuf,
    fields: Map<String, Value>,
    config: TransformerConfig,
    style: HeadStyle,
    exchange: usize,
    warnings: Vec<String>,
    store: SafetensorsStore,
}

/// Returns true if a `config.json` describes an encoder.
pub fn is_encoder_type(fields: &Map<String, Value>) -> bool {
    let model_type = fields.get("model_type").and_then(Value::as_str);
    EXCHANGES
        .iter()
        .any(|exchange| Some(exchange.model_type) == model_type)
}

impl HuggingFaceEncoder {
    /// Reads a directory's `config.json` and memory-maps its weights.
    ///
    /// # Errors
    /// A file cannot be read, its model type is not that of an encoder, or a field requests something that is not
    /// supported; the error names the field.
    pub fn open(path: &Path) -> Result<Self, HuggingFaceError> {
        let fields = read_fields(path)?;
        let exchange = exchange(&fields)?;
        let store = open_weights(path)?;
        let has_pooler = store
            .names()
            .any(|name| name.ends_with("pooler.dense.weight"));
        let read = Fields::new(&fields);
        let (config, style) = described(EXCHANGES[exchange], &read, has_pooler)?;
        let warnings = known_fields::warnings(&read);
        Ok(Self {
            path: path.to_owned(),
            warnings,
            fields,
            config,
            style,
            exchange,
            store,
        })
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Warnings about fields of `config.json` that are ignored.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The fields of `config.json`, unchanged.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// The encoder's configuration.
    pub fn config(&self) -> &TransformerConfig {
        &self.config
    }

    /// The value of `model_type`.
    pub fn model_type(&self) -> &'static str {
        EXCHANGES[self.exchange].model_type
    }

    /// The tensors of the parameter at `path`.
    pub fn source(&self, path: &str) -> Option<Source> {
        source(EXCHANGES[self.exchange], &self.config, path)
    }

    /// Loads the encoder in f32.
    ///
    /// # Errors
    /// A tensor is missing, unexpected, or of another shape or type.
    pub fn encoder<B: Backend>(
        &self,
        device: &Device<B>,
    ) -> Result<Transformer<B>, HuggingFaceError> {
        let loaded = self.check_size().and_then(|()| self.loaded(device));
        loaded.map_err(in_weights(&self.path))
    }

    /// Loads the weights in f32 for `config`, which may have another head and other training settings. Parameters of a
    /// head that the files lack have their initial values by `seed`; the files' other heads are ignored.
    ///
    /// # Errors
    /// Another setting of `config` differs from the files', or those of [`HuggingFaceEncoder::encoder`].
    pub fn encoder_as<B: Backend>(
        &self,
        config: &TransformerConfig,
        seed: u64,
        device: &Device<B>,
    ) -> Result<Transformer<B>, HuggingFaceError> {
        const TRAINING: [&str; 4] = ["head", "dropout", "attention_dropout", "init"];
        let (own, other) = (
            EncoderSettings::of(&self.config),
            EncoderSettings::of(config),
        );
        check_same(&own, &other, &TRAINING)?;
        let exchange = EXCHANGES[self.exchange];
        let naming = Naming {
            source: |path: &str| source(exchange, config, path),
            optional_prefix: exchange.prefix,
            constant: |_| true,
            tied: match config.encoder_head() {
                Some(EncoderHeadConfig::MaskedLm { .. }) => exchange.heads.tied,
                _ => &[],
            },
        };
        let is_of_head = |path: &str| path.starts_with("head.");
        let loaded = self.check_size().and_then(|()| {
            load_present(
                config.init::<B>(seed, device),
                &self.store,
                naming,
                is_of_head,
            )
        });
        loaded.map_err(in_weights(&self.path))
    }

    /// The head of this model type that predicts masked tokens.
    pub fn masked_lm_head(&self) -> EncoderHeadConfig {
        self.style.masked_lm_head()
    }

    /// The head of this model type that predicts the labels of texts.
    pub fn classifier_head(&self, labels: Vec<String>) -> EncoderHeadConfig {
        self.style.sequence_head(labels)
    }

    fn loaded<B: Backend>(&self, device: &Device<B>) -> Result<Transformer<B>, WeightsError> {
        let exchange = EXCHANGES[self.exchange];
        let head = self.config.encoder_head();
        let constant: fn(&str) -> bool = match head {
            Some(EncoderHeadConfig::Pooler | EncoderHeadConfig::Sequence { .. }) => {
                |name| EncoderExchange::is_ignored(name, true)
            }
            _ => |name| EncoderExchange::is_ignored(name, false),
        };
        let naming = Naming {
            source: |path: &str| self.source(path),
            optional_prefix: exchange.prefix,
            constant,
            tied: match head {
                Some(EncoderHeadConfig::MaskedLm { .. }) => exchange.heads.tied,
                _ => &[],
            },
        };
        load(self.config.blank::<B>(device), &self.store, naming)
    }

    fn check_size(&self) -> Result<(), WeightsError> {
        let parameters = usize::try_from(self.config.parameters()).unwrap_or(usize::MAX);
        check_size(parameters, &self.store)
    }
}

/// The number of the exchange of a `config.json`.
pub(super) fn exchange(fields: &Map<String, Value>) -> Result<usize, HuggingFaceError> {
    exchange_of(&Fields::new(fields))
}

fn exchange_of(fields: &Fields<'_>) -> Result<usize, HuggingFaceError> {
    let model_type = fields.text("model_type")?;
    let found = EXCHANGES
        .iter()
        .position(|exchange| exchange.model_type == model_type);
    found.ok_or_else(|| {
        let known = EXCHANGES.map(|exchange| exchange.model_type).join(", ");
        fields.error("model_type", format!("must be one of {known}"))
    })
}

/// Builds the configuration that a `config.json` describes.
pub(super) fn config(
    exchange: &EncoderExchange,
    fields: &Map<String, Value>,
    has_pooler: bool,
) -> Result<TransformerConfig, HuggingFaceError> {
    described(exchange, &Fields::new(fields), has_pooler).map(|(config, _)| config)
}

/// Reads every field of the `config.json` of an encoder without a head.
#[cfg(test)]
pub(crate) fn read_described(fields: &Fields<'_>) -> Result<(), HuggingFaceError> {
    let exchange = EXCHANGES[exchange_of(fields)?];
    described(exchange, fields, false).map(|_| ())
}

/// Builds the configuration and the form of heads that a `config.json` describes.
fn described(
    exchange: &EncoderExchange,
    fields: &Fields<'_>,
    has_pooler: bool,
) -> Result<(TransformerConfig, HeadStyle), HuggingFaceError> {
    fields.refuse(quantization::FIELD, "quantized encoders are not supported")?;
    let settings = (exchange.read)(fields)?;
    let style = (exchange.style)(fields, &settings)?;
    let head = exchange.head(fields, &style, has_pooler)?;
    let config = TransformerConfig::try_from(EncoderSettings { head, ..settings })?;
    Ok((config, style))
}

/// The tensors of a parameter.
pub(super) fn source(
    exchange: &EncoderExchange,
    config: &TransformerConfig,
    path: &str,
) -> Option<Source> {
    let head = exchange.head_names(config.encoder_head());
    let attention = config.stack().block.attention;
    names::source(exchange.names, &attention, path)
        .or_else(|| names::source(head, &attention, path))
}
