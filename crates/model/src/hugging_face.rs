//! Reads Hugging Face model directories, and writes directories that `transformers` can load.
//!
//! `export` writes directories. `exchange` reads the fields of a `config.json`; the field names are in each family's
//! file.

mod export;

pub(crate) use export::PADDING;
pub use export::{ExportOptions, Exported, check_exportable, export};

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use serde_json::{Map, Value};

use emberlm_kernels::Backend;
use emberlm_system::read;

use crate::checked::DecoderConfig;
use crate::count;
use crate::decoder::Decoder;
use crate::error::{HuggingFaceError, WeightsError};
use crate::exchange::Exchange;
use crate::exchange::fields::Fields;
use crate::exchange::quantization;
use crate::families::Family;
use crate::weight_format::WeightFormat;
use crate::weights::quantized::{self, Quantization};
use crate::weights::{Element, Naming, SafetensorsStore, TensorStore, load_decoder};

/// The file that identifies a directory as a Hugging Face model.
pub const CONFIG_FILE: &str = "config.json";
/// Weights in one file.
pub const WEIGHTS_FILE: &str = "model.safetensors";
/// The index of weights in several files.
pub const INDEX_FILE: &str = "model.safetensors.index.json";

/// Upper bound on parameters per byte, well above int8's one. Above it some tensor is missing or has another shape.
const MOST_PER_BYTE: u64 = 4;

/// A Hugging Face directory whose configuration has been read.
#[derive(Debug)]
pub struct HuggingFaceModel {
    path: PathBuf,
    fields: Map<String, Value>,
    config: DecoderConfig,
    quantization: Option<Quantization>,
}

impl HuggingFaceModel {
    /// Reads a directory's `config.json`.
    ///
    /// # Errors
    /// The file cannot be read, its model type is none of [`Family::ALL`], or a field requests something that is not
    /// supported; the error names the field.
    pub fn open(path: &Path) -> Result<Self, HuggingFaceError> {
        let file = path.join(CONFIG_FILE);
        let text = read::read_text(&file, read::DESCRIPTION_LIMIT).map_err(|source| {
            let path = file.clone();
            HuggingFaceError::Io { path, source }
        })?;
        let fields: Map<String, Value> =
            serde_json::from_str(&text).map_err(|error| HuggingFaceError::Json {
                path: file,
                reason: error.to_string(),
            })?;
        let (config, quantization) = described(&fields)?;
        Ok(Self {
            path: path.to_owned(),
            config,
            quantization,
            fields,
        })
    }

    /// The storage format of the weights: packed if `quantization_config` declares it.
    pub fn weight_format(&self) -> WeightFormat {
        self.quantization
            .map_or(WeightFormat::F32, Quantization::weight_format)
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The model's configuration.
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// The fields of `config.json`, unchanged.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// Memory-maps the weights.
    ///
    /// # Errors
    /// There are no weights, only pickled ones, or damaged ones.
    pub fn tensors(&self) -> Result<SafetensorsStore, HuggingFaceError> {
        let [index, whole] = [INDEX_FILE, WEIGHTS_FILE].map(|name| self.path.join(name));
        // The same order of preference as in `transformers`.
        let store = if whole.exists() {
            SafetensorsStore::open(&whole)
        } else if index.exists() {
            SafetensorsStore::open_index(&index)
        } else {
            return Err(self.no_weights());
        };
        store.map_err(self.weights_error())
    }

    fn no_weights(&self) -> HuggingFaceError {
        let pickles = [
            "pytorch_model.bin",
            "pytorch_model.bin.index.json",
            "model.pt",
            "ckpt.pt",
        ];
        let pickle = pickles
            .map(|name| self.path.join(name))
            .into_iter()
            .find(|p| p.exists());
        match pickle {
            Some(path) => HuggingFaceError::Pickle { path },
            None => HuggingFaceError::NoWeights {
                path: self.path.clone(),
            },
        }
    }

    /// Loads the model with its weights as stored: in f32, or packed.
    ///
    /// # Errors
    /// Those of [`HuggingFaceModel::tensors`]; a tensor is missing, unexpected, or of another shape or type; a scale is
    /// not finite.
    pub fn decoder<B: Backend>(&self, device: &Device<B>) -> Result<Decoder<B>, HuggingFaceError> {
        self.decoder_in(self.weight_format(), device)
    }

    /// Loads the model with its weights in a given format. Packed weights are read unchanged or unpacked; others are
    /// packed one at a time while reading.
    ///
    /// # Errors
    /// Those of [`HuggingFaceModel::decoder`].
    pub fn decoder_in<B: Backend>(
        &self,
        format: WeightFormat,
        device: &Device<B>,
    ) -> Result<Decoder<B>, HuggingFaceError> {
        let store = self.tensors()?;
        let exchange = exchange_of(self.config.family())?;
        self.check_size(&store, &exchange)
            .map_err(self.weights_error())?;
        let naming = Naming {
            source: |path: &str| self.config.family().source(&self.config, path),
            optional_prefix: exchange.prefix,
            constant: exchange.constant,
            tied: self
                .config
                .head()
                .tied
                .then_some((exchange.head, exchange.embedding)),
        };
        let blank = self.config.blank::<B>(device);
        load_decoder(blank, &store, naming, self.quantization, format).map_err(self.weights_error())
    }

    /// Returns an error if the files are far too small for the configuration, before memory is allocated for it: a
    /// number in `config.json` can be arbitrarily large, the size of a file cannot.
    fn check_size(&self, store: &dyn TensorStore, exchange: &Exchange) -> Result<(), WeightsError> {
        let parameters = count::parameters(&self.config).total;
        let bytes = store.total_bytes();
        if parameters as u64 / MOST_PER_BYTE <= bytes {
            return Ok(());
        }
        let name = exchange.embedding;
        let expected = [self.config.vocab_size(), self.config.d_model()];
        let short = name.strip_prefix(exchange.prefix).unwrap_or(name);
        for name in [name, short] {
            match store.shape(name) {
                Some(found) if found != expected => {
                    return Err(WeightsError::Shape {
                        name: name.to_owned(),
                        found: found.to_vec(),
                        expected: expected.to_vec(),
                    });
                }
                _ => {}
            }
        }
        Err(WeightsError::TooFew { parameters, bytes })
    }

    /// The widest element type of the stored weights, not counting packed weights and their scales.
    ///
    /// # Errors
    /// Those of [`HuggingFaceModel::tensors`].
    pub fn element(&self) -> Result<Element, HuggingFaceError> {
        let constant = exchange_of(self.config.family())?.constant;
        let store = self.tensors()?;
        let packed = self.quantization.is_some();
        let other = |name: &&str| constant(name) || (packed && quantized::is_beside(name));
        let weights = store.names().filter(|name| !other(name));
        let elements = weights.filter_map(|name| store.element(name));
        Ok(elements.max().unwrap_or(Element::F32))
    }

    fn weights_error(&self) -> impl Fn(WeightsError) -> HuggingFaceError + '_ {
        |source| HuggingFaceError::Weights {
            path: self.path.clone(),
            source,
        }
    }
}

/// Builds the model configuration described by the fields of a `config.json`.
///
/// # Errors
/// Those of [`HuggingFaceModel::open`].
pub fn read_config(fields: &Map<String, Value>) -> Result<DecoderConfig, HuggingFaceError> {
    described(fields).map(|(config, _)| config)
}

/// Builds the model configuration and the quantization described by the fields of a `config.json`.
fn described(
    fields: &Map<String, Value>,
) -> Result<(DecoderConfig, Option<Quantization>), HuggingFaceError> {
    let fields = Fields::new(fields);
    let model_type = fields.text("model_type")?;
    let exchanges = || Family::ALL.into_iter().filter_map(Family::exchange);
    let Some(exchange) = exchanges().find(|exchange| exchange.model_type == model_type) else {
        let known: Vec<&str> = exchanges().map(|exchange| exchange.model_type).collect();
        return Err(fields.error("model_type", format!("must be one of {}", known.join(", "))));
    };
    let config = DecoderConfig::try_from((exchange.read)(&fields)?)?;
    let quantization = quantization::read(&fields, &exchange, config.head().tied)?;
    Ok((config, quantization))
}

fn exchange_of(family: Family) -> Result<Exchange, HuggingFaceError> {
    family.exchange().ok_or(HuggingFaceError::NoType {
        family: family.name(),
    })
}
