//! Reads Hugging Face directories of encoder–decoders.

mod export;

pub use export::{export, model_type_of};

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use serde_json::{Map, Value};

use emberlm_kernels::Backend;

use crate::config::difference::check_same;
use crate::error::{HuggingFaceError, WeightsError};
use crate::exchange::fields::Fields;
use crate::exchange::known_fields;
use crate::exchange::t5::{self, EXCHANGES, Exchange};
use crate::hugging_face::{check_size, in_weights, open_weights, read_fields};
use crate::transformer::checked::TransformerConfig;
use crate::transformer::encoder_decoder::EncoderDecoderSettings;
use crate::transformer::model::Transformer;
use crate::weights::map::Source;
use crate::weights::{Element, Naming, SafetensorsStore, TensorStore, equal, load};

/// A Hugging Face directory of an encoder–decoder whose configuration has been read.
#[derive(Debug)]
pub struct HuggingFaceEncoderDecoder {
    path: PathBuf,
    fields: Map<String, Value>,
    config: TransformerConfig,
    exchange: &'static Exchange,
    warnings: Vec<String>,
    store: SafetensorsStore,
}

/// Returns true if a `config.json` describes an encoder–decoder.
pub fn is_encoder_decoder_type(fields: &Map<String, Value>) -> bool {
    let model_type = fields.get("model_type").and_then(Value::as_str);
    model_type.is_some_and(|model_type| exchange(model_type).is_some())
}

impl HuggingFaceEncoderDecoder {
    /// Reads a directory's `config.json` and memory-maps its weights.
    ///
    /// # Errors
    /// A file cannot be read, its model type is not that of an encoder–decoder, or a field requests something that is
    /// not supported; the error names the field.
    pub fn open(path: &Path) -> Result<Self, HuggingFaceError> {
        let fields = read_fields(path)?;
        let read = Fields::new(&fields);
        let exchange = exchange(read.text("model_type")?).ok_or_else(|| {
            let known = EXCHANGES.each_ref().map(|exchange| exchange.model_type);
            read.error("model_type", format!("must be one of {}", known.join(", ")))
        })?;
        let store = open_weights(path)?;
        let tied = is_tied(&store).map_err(in_weights(path))?;
        let config = TransformerConfig::try_from(exchange.read(&read, tied)?)?;
        let warnings = known_fields::warnings(&read);
        Ok(Self {
            path: path.to_owned(),
            warnings,
            fields,
            config,
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

    /// The model's configuration.
    pub fn config(&self) -> &TransformerConfig {
        &self.config
    }

    /// The value of `model_type`.
    pub fn model_type(&self) -> &'static str {
        self.exchange.model_type
    }

    /// The element type of the embedding in the files.
    pub fn element(&self) -> Option<Element> {
        self.store.element(t5::EMBEDDING)
    }

    /// The tensors of a parameter.
    pub fn source(&self, path: &str) -> Option<Source> {
        t5::source(&self.config, path)
    }

    /// Loads the model in f32.
    ///
    /// # Errors
    /// A tensor is missing, unexpected, or of another shape or type.
    pub fn model<B: Backend>(
        &self,
        device: &Device<B>,
    ) -> Result<Transformer<B>, HuggingFaceError> {
        self.model_as(&self.config, device)
    }

    /// Loads the model in f32 for `config`, which may have other training settings.
    ///
    /// # Errors
    /// Another setting of `config` differs from the files', or those of [`HuggingFaceEncoderDecoder::model`].
    pub fn model_as<B: Backend>(
        &self,
        config: &TransformerConfig,
        device: &Device<B>,
    ) -> Result<Transformer<B>, HuggingFaceError> {
        let own = EncoderDecoderSettings::of(&self.config);
        let other = EncoderDecoderSettings::of(config);
        check_same(&own, &other, &["dropout", "init_factor"])?;
        let loaded = self.check_size().and_then(|()| {
            let naming = Naming {
                source: |path: &str| self.source(path),
                optional_prefix: "",
                constant: t5::is_ignored,
                tied: match self.config.head().tied {
                    true => t5::TIED,
                    false => t5::UNTIED,
                },
            };
            load(config.blank::<B>(device), &self.store, naming)
        });
        loaded.map_err(in_weights(&self.path))
    }

    fn check_size(&self) -> Result<(), WeightsError> {
        let parameters = usize::try_from(self.config.parameters()).unwrap_or(usize::MAX);
        check_size(parameters, &self.store)
    }
}

/// Reads every field of the `config.json` of an encoder–decoder.
#[cfg(test)]
pub(crate) fn read_described(fields: &Fields<'_>) -> Result<(), HuggingFaceError> {
    let model_type = fields.text("model_type")?;
    let error = || fields.error("model_type", "must be an encoder–decoder's");
    let exchange = exchange(model_type).ok_or_else(error)?;
    exchange.read(fields, true).map(|_| ())
}

/// Every model type.
pub(super) static KNOWN: [Exchange; EXCHANGES.len()] = EXCHANGES;

/// The exchange of a model type.
pub(super) fn exchange(model_type: &str) -> Option<&'static Exchange> {
    KNOWN
        .iter()
        .find(|exchange| exchange.model_type == model_type)
}

/// Returns true unless the files have a head that differs from the embedding.
fn is_tied(store: &SafetensorsStore) -> Result<bool, WeightsError> {
    if !store.contains(t5::HEAD) {
        return Ok(true);
    }
    // A file with a head and without the embedding has the embedding under the head's name.
    let embedding = t5::TIED.iter().map(|(copy, _)| *copy).take(2);
    let mut embedding = std::iter::once(t5::EMBEDDING)
        .chain(embedding)
        .filter(|name| store.contains(name));
    match embedding.next() {
        Some(embedding) => equal(store, t5::HEAD, embedding),
        None => Ok(true),
    }
}
