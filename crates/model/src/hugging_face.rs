//! Hugging Face model directories, read as they are and written so that `transformers` loads them.
//!
//! `export` writes. `exchange` reads the fields of a `config.json`; their names are in each family's own file.

mod export;

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

/// The file that makes a directory a Hugging Face model.
pub const CONFIG_FILE: &str = "config.json";
/// Weights in one file.
pub const WEIGHTS_FILE: &str = "model.safetensors";
/// The index of weights in several files.
pub const INDEX_FILE: &str = "model.safetensors.index.json";

/// A number takes two bytes at least; with more parameters than this to each, some tensor is missing or of another
/// shape whatever else is found.
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
    /// It cannot be read, is of another type than [`Family::ALL`]'s, or asks for something that is not computed here:
    /// the error names the field.
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

    /// The format that the weights are stored in: packed, where the `quantization_config` says so.
    pub fn weight_format(&self) -> WeightFormat {
        self.quantization
            .map_or(WeightFormat::F32, Quantization::weight_format)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The model's configuration.
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// The configuration's fields as they were found.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// The weights, mapped into memory.
    ///
    /// # Errors
    /// There are none, only pickled ones, or damaged ones.
    pub fn tensors(&self) -> Result<SafetensorsStore, HuggingFaceError> {
        let [index, whole] = [INDEX_FILE, WEIGHTS_FILE].map(|name| self.path.join(name));
        // In `transformers`' order.
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

    /// The model with its weights as they are stored: in f32, or packed.
    ///
    /// # Errors
    /// As [`HuggingFaceModel::tensors`]; a tensor is missing, left over, or of another shape or type; a scale is not finite.
    pub fn decoder<B: Backend>(&self, device: &Device<B>) -> Result<Decoder<B>, HuggingFaceError> {
        self.decoder_in(self.weight_format(), device)
    }

    /// The model with its weights in a format. Weights that are stored packed are read as they are, or unpacked; others are packed
    /// one by one as they are read.
    ///
    /// # Errors
    /// As [`HuggingFaceModel::decoder`].
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

    /// Refuses weights that are far too few for the configuration, before memory is asked for it: a number in
    /// `config.json` can be anything, the bytes of a file are there.
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

    /// The widest type that weights are stored in, apart from packed ones and their scales.
    ///
    /// # Errors
    /// As [`HuggingFaceModel::tensors`].
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

/// The model that the fields of a `config.json` describe.
///
/// # Errors
/// As [`HuggingFaceModel::open`].
pub fn read_config(fields: &Map<String, Value>) -> Result<DecoderConfig, HuggingFaceError> {
    described(fields).map(|(config, _)| config)
}

/// The model that the fields of a `config.json` describe, and the quantization of its weights.
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
