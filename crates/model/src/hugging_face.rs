//! Reads and writes model directories in the format of Hugging Face `transformers`.
//!
//! `export` writes directories. `exchange` reads the fields of a `config.json`; each family's file lists its field and
//! tensor names.

mod describe;
mod export;
mod heads;
mod text_part;

pub use crate::exchange::encoder::HeadStyle;
pub(crate) use describe::{Description, described_config, model_type_of, read_described};
use describe::{facts, read_fields};
pub use describe::{kind_of, read_config};
pub(crate) use export::with_required_parameters;
pub use export::{ExportOptions, Exported, check_exportable, export, exporting_family};
pub use heads::{heads_of, with_head_of};

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use serde_json::{Map, Value};

use emberlm_gguf::{GgufFile, is_gguf};
use emberlm_kernels::Backend;

use crate::config::difference::check_same;
use crate::error::{HuggingFaceError, WeightsError};
use crate::exchange::FileFacts;
use crate::exchange::fields::Fields;
use crate::families::Family;
use crate::gguf;
use crate::transformer::checked::TransformerConfig;
use crate::transformer::model::Transformer;
use crate::transformer::reconfigure::TRAINING_ONLY;
use crate::transformer::weight_format::{StoredFormats, WeightFormat};
use crate::weights::map::Source;
use crate::weights::quantized::{self, Quantization};
use crate::weights::{
    Element, Mxfp4Store, Naming, SafetensorsStore, TensorStore, load, load_decoder, load_present,
};

/// The file that identifies a directory as a Hugging Face model.
pub const CONFIG_FILE: &str = "config.json";
/// File with all weights.
pub const WEIGHTS_FILE: &str = "model.safetensors";
/// Index of weights that are split into several files.
pub const INDEX_FILE: &str = "model.safetensors.index.json";

/// Upper bound on parameters per byte of weights, well above the 1 of int8. Beyond it, some tensor must be missing or
/// have another shape.
const MAX_PARAMETERS_PER_BYTE: u64 = 4;

/// A Hugging Face directory, or a GGUF file, whose configuration has been read.
#[derive(Debug)]
pub struct HuggingFaceModel {
    path: PathBuf,
    /// The opened file if the path is that of a GGUF file.
    gguf: Option<GgufFile>,
    fields: Map<String, Value>,
    config: TransformerConfig,
    quantization: Option<Quantization>,
    heads: Option<HeadStyle>,
    warnings: Vec<String>,
    /// True if the files have further parts, such as one for images.
    has_parts: bool,
}

impl HuggingFaceModel {
    /// Reads a directory's `config.json`, or the metadata of a GGUF file.
    ///
    /// # Errors
    /// The file cannot be read, its model type is none of [`Family::ALL`], or a field requests something that is not
    /// supported; the error names the field.
    pub fn open(path: &Path) -> Result<Self, HuggingFaceError> {
        let gguf = match is_gguf(path) && !path.is_dir() {
            true => Some(
                GgufFile::open(path).map_err(|source| HuggingFaceError::Gguf {
                    path: path.to_owned(),
                    source,
                })?,
            ),
            false => None,
        };
        let whole = match &gguf {
            Some(file) => gguf::config_fields(file)?,
            None => read_fields(path)?,
        };
        let mut part = text_part::fields(&whole)?;
        if let Some(text) = &mut part
            && let Ok(files) = open_weights(path)
        {
            text_part::set_tied(text, files.names());
        }
        let unread = part.as_ref().map(|_| text_part::warning(&whole));
        let fields = part.unwrap_or(whole);
        let facts = match &gguf {
            Some(_) => FileFacts::default(),
            None => facts(path, &fields)?,
        };
        let described = read_described(&Fields::new(&fields), facts);
        let Description {
            config,
            quantization,
            heads,
            mut warnings,
        } = match &gguf {
            Some(_) => described.map_err(|error| gguf::of_metadata(error, path))?,
            None => described?,
        };
        let has_parts = unread.is_some();
        warnings.extend(unread);
        Ok(Self {
            path: path.to_owned(),
            gguf,
            config,
            quantization,
            heads,
            warnings,
            fields,
            has_parts,
        })
    }

    /// The family, which determines the names of tensors.
    pub fn family(&self) -> Family {
        self.config.family()
    }

    /// The form of the heads of an encoder's model type; `None` for other models.
    pub fn heads(&self) -> Option<&HeadStyle> {
        self.heads.as_ref()
    }

    /// The tensors of the parameter at `path`; `None` if the files lack it.
    pub fn source(&self, path: &str) -> Option<Source> {
        self.family().source(&self.config, path)
    }

    /// Format of the stored weights: packed if `config.json` has a `quantization_config`, or if layers of a GGUF file
    /// are packed.
    pub fn weight_format(&self) -> WeightFormat {
        if let Some(file) = &self.gguf {
            return gguf::weight_format(file);
        }
        self.quantization
            .map_or(WeightFormat::F32, Quantization::weight_format)
    }

    /// The format that holds every matrix in the bits that it is stored in: that of [`Self::weight_format`], and 16 bits
    /// for matrices of f16 and bf16. Products convert them to f32 exactly, so logits differ from those of f32 weights only
    /// by the order of additions. Weights in this format are not trained.
    ///
    /// # Errors
    /// Those of [`HuggingFaceModel::tensors`].
    pub fn inference_format(&self) -> Result<WeightFormat, HuggingFaceError> {
        if let Some(file) = &self.gguf {
            return Ok(gguf::inference_format(file));
        }
        let store = self.tensors()?;
        let mut elements = BTreeMap::<Element, usize>::new();
        for name in store.names() {
            if let (Some(shape @ [_, _]), Some(element)) = (store.shape(name), store.element(name))
            {
                *elements.entry(element).or_default() += shape.iter().product::<usize>();
            }
        }
        let most = elements.into_iter().max_by_key(|(_, count)| *count);
        let most = most.and_then(|(element, _)| element.packed_format());
        Ok(match (self.weight_format(), most) {
            (WeightFormat::Stored(stored), most) => WeightFormat::Stored(StoredFormats {
                embedding: most,
                head: most,
                ..stored
            }),
            (WeightFormat::F32, Some(format)) => WeightFormat::Stored(StoredFormats {
                layers: format,
                embedding: Some(format),
                head: Some(format),
            }),
            (format, _) => format,
        })
    }

    /// The GGUF file, if the model was opened from one.
    pub fn gguf(&self) -> Option<&GgufFile> {
        self.gguf.as_ref()
    }

    /// The path of the directory or file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The model's configuration.
    pub fn config(&self) -> &TransformerConfig {
        &self.config
    }

    /// Warnings about fields of `config.json` that are ignored.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The fields of `config.json`, unchanged, or those of its text model. For a GGUF file, those that describe its model.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// Memory-maps the weights.
    ///
    /// # Errors
    /// The directory has no weights, or only pickled ones, or the files are damaged.
    pub fn tensors(&self) -> Result<Box<dyn TensorStore + '_>, HuggingFaceError> {
        Ok(match &self.gguf {
            Some(file) => Box::new(gguf::store(file)?),
            None if self.quantization == Some(Quantization::Mxfp4) => {
                let files = self.files()?;
                Box::new(Mxfp4Store::new(files).map_err(in_weights(&self.path))?)
            }
            None => Box::new(self.files()?),
        })
    }

    /// Memory-maps the weights of a directory's text model.
    fn files(&self) -> Result<SafetensorsStore, HuggingFaceError> {
        let files = open_weights(&self.path)?;
        Ok(match self.has_parts {
            true => files.renamed(text_part::name),
            false => files,
        })
    }

    /// Loads the model in the format of its stored weights: f32 or packed.
    ///
    /// # Errors
    /// Those of [`HuggingFaceModel::tensors`]; a tensor is missing, unexpected, or has another shape or type; a scale
    /// is not finite.
    pub fn decoder<B: Backend>(
        &self,
        device: &Device<B>,
    ) -> Result<Transformer<B>, HuggingFaceError> {
        self.decoder_in(self.weight_format(), device)
    }

    /// Loads the model with its weights in the given format. Stored packed weights are read unchanged or unpacked;
    /// floating-point weights are packed one by one while loading.
    ///
    /// # Errors
    /// Those of [`HuggingFaceModel::decoder`].
    pub fn decoder_in<B: Backend>(
        &self,
        format: WeightFormat,
        device: &Device<B>,
    ) -> Result<Transformer<B>, HuggingFaceError> {
        let store = self.tensors()?;
        self.check_size(&*store).map_err(in_weights(&self.path))?;
        let blank = self.config.blank::<B>(device);
        if let Some(file) = &self.gguf {
            let names = gguf::names(file)?;
            let naming = Naming {
                source: |path: &str| names.source(&self.config, path),
                optional_prefix: "",
                constant: Box::new(gguf::is_constant),
                tied: &[],
            };
            return load_decoder(blank, &*store, naming, None, format)
                .map_err(in_weights(&self.path));
        }
        let own = model_type_of(self.family())?;
        let (int8, unstacked) = match self.quantization {
            Some(Quantization::Int8(int8)) => (Some(int8), false),
            Some(Quantization::Mxfp4) => (None, true),
            None => (None, false),
        };
        let source = |path: &str| {
            let source = own.source(&self.config, path)?;
            // The vectors of a layer are stacked in either case.
            Some(match unstacked && path.ends_with(".weight") {
                true => source.unstacked(),
                false => source,
            })
        };
        let naming = Naming {
            source,
            optional_prefix: own.prefix(),
            constant: own.constant(&self.config),
            tied: &own.tied(&self.config),
        };
        load_decoder(blank, &*store, naming, int8, format).map_err(in_weights(&self.path))
    }

    /// Loads an encoder or an encoder–decoder in f32 for `config`, which may have another head and other training
    /// settings. Parameters of a head that the files lack have their initial values by `seed`; the files' other heads are
    /// ignored.
    ///
    /// # Errors
    /// Another setting of `config` differs from the files', or those of [`HuggingFaceModel::decoder`].
    pub fn model_as<B: Backend>(
        &self,
        config: &TransformerConfig,
        seed: u64,
        device: &Device<B>,
    ) -> Result<Transformer<B>, HuggingFaceError> {
        const HEADS: [&str; 3] = [
            "family",
            "architecture.head",
            "architecture.attention_dropout",
        ];
        let mut wanted = config.raw();
        check_same(
            &self.config.raw(),
            &wanted,
            &[&TRAINING_ONLY[..], &HEADS].concat(),
        )?;
        wanted.family = self.family();
        let config = TransformerConfig::try_from(wanted)?;
        let store = self.tensors()?;
        self.check_size(&*store).map_err(in_weights(&self.path))?;
        let own = model_type_of(self.family())?;
        let same_head = config.encoder_head() == self.config.encoder_head();
        let naming = Naming {
            source: |path: &str| own.source(&config, path),
            optional_prefix: own.prefix(),
            constant: match same_head {
                true => own.constant(&config),
                false => Box::new(|_: &str| true),
            },
            tied: &own.tied(&config),
        };
        if same_head {
            return load(config.blank::<B>(device), &*store, naming)
                .map_err(in_weights(&self.path));
        }
        let is_of_head = |path: &str| path.starts_with("head.");
        load_present(config.init::<B>(seed, device), &*store, naming, is_of_head)
            .map_err(in_weights(&self.path))
    }

    /// [`check_size`], with the shape of the embedding as a clearer reason.
    fn check_size(&self, store: &dyn TensorStore) -> Result<(), WeightsError> {
        let parameters = usize::try_from(self.config.parameters()).unwrap_or(usize::MAX);
        let Err(too_few) = check_size(parameters, store) else {
            return Ok(());
        };
        let expected = [self.config.vocab_size(), self.config.d_model()];
        let source = self.source("tokens");
        let named = source.as_ref().and_then(|source| source.names().next());
        let name = match &self.gguf {
            Some(_) => gguf::EMBEDDING,
            None => named.unwrap_or_default(),
        };
        let own = self.family().of_transformers();
        let short = own.and_then(|own| name.strip_prefix(own.prefix()));
        for name in [Some(name), short].into_iter().flatten() {
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
        Err(too_few)
    }

    /// The widest element type of the stored weights, except packed weights and their scales.
    ///
    /// # Errors
    /// Those of [`HuggingFaceModel::tensors`].
    pub fn element(&self) -> Result<Element, HuggingFaceError> {
        let constant = match &self.gguf {
            Some(_) => Box::new(gguf::is_constant),
            None => model_type_of(self.family())?.constant(&self.config),
        };
        let store = self.tensors()?;
        let packed = matches!(self.quantization, Some(Quantization::Int8(_)));
        let other = |name: &&str| constant(name) || (packed && quantized::is_companion(name));
        let weights = store.names().filter(|name| !other(name));
        let elements = weights.filter_map(|name| store.element(name));
        Ok(elements.max().unwrap_or(Element::F32))
    }
}

/// Memory-maps a directory's weights.
pub(crate) fn open_weights(path: &Path) -> Result<SafetensorsStore, HuggingFaceError> {
    let [index, whole] = [INDEX_FILE, WEIGHTS_FILE].map(|name| path.join(name));
    // The same order of preference as in `transformers`.
    let store = if whole.exists() {
        SafetensorsStore::open(&whole)
    } else if index.exists() {
        SafetensorsStore::open_index(&index)
    } else {
        return Err(no_weights(path));
    };
    store.map_err(in_weights(path))
}

/// For `map_err`: an error of the weights in a directory.
pub(crate) fn in_weights(path: &Path) -> impl Fn(WeightsError) -> HuggingFaceError + '_ {
    |source| HuggingFaceError::Weights {
        path: path.to_owned(),
        source,
    }
}

/// Returns an error if the files are far too small for a model of so many parameters. Sizes in `config.json` can be
/// arbitrarily large, so this check comes before allocating memory for them.
pub(crate) fn check_size(parameters: usize, store: &dyn TensorStore) -> Result<(), WeightsError> {
    let bytes = store.total_bytes();
    match parameters as u64 / MAX_PARAMETERS_PER_BYTE <= bytes {
        true => Ok(()),
        false => Err(WeightsError::TooFew { parameters, bytes }),
    }
}

fn no_weights(path: &Path) -> HuggingFaceError {
    let pickles = [
        "pytorch_model.bin",
        "pytorch_model.bin.index.json",
        "model.pt",
        "ckpt.pt",
    ];
    let pickle = pickles
        .map(|name| path.join(name))
        .into_iter()
        .find(|p| p.exists());
    match pickle {
        Some(path) => HuggingFaceError::Pickle { path },
        None => HuggingFaceError::NoWeights {
            path: path.to_owned(),
        },
    }
}
