//! Writes Hugging Face model directories.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, View};
use serde_json::{Map, Value, json};

use emberlm_kernels::{Backend, PackedFormat};

use super::{CONFIG_FILE, INDEX_FILE, WEIGHTS_FILE, described_config, model_type_of};
use crate::config::difference::{first_difference, object};
use crate::config::{EncoderHeadConfig, ModelKind};
use crate::error::{HuggingFaceError, WeightsError};
use crate::exchange::fields::Fields;
use crate::exchange::{FileFacts, ModelType, quantization};
use crate::families::Family;
use crate::transformer::checked::TransformerConfig;
use crate::transformer::model::Transformer;
use crate::transformer::reconfigure::computed;
use crate::weights::quantized::{Int8, QuantizedLayout};
use crate::weights::{Element, Published, PublishedPacked, published, write};

/// Options of [`export`].
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// Element type of the weights.
    pub element: Element,
    /// Maximum bytes of tensors per file. A larger tensor is written to a separate file.
    pub shard_bytes: u64,
    /// Additional fields of `config.json` that do not affect the model's output, such as token ids.
    pub fields: Map<String, Value>,
    /// The family in whose form the model is written; by default its own.
    pub family: Option<Family>,
}

/// Weights in f32, in files of at most 5 GB, without additional fields.
impl Default for ExportOptions {
    fn default() -> Self {
        Self {
            element: Element::F32,
            shard_bytes: 5_000_000_000,
            fields: Map::new(),
            family: None,
        }
    }
}

/// Summary of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The weight files, in order.
    pub files: Vec<PathBuf>,
    /// Number of tensors.
    pub tensors: usize,
    /// Total bytes of the tensors.
    pub bytes: u64,
}

/// Checks that [`export`] supports a configuration.
///
/// # Errors
/// `transformers` has no model type for the family, or the model type cannot express the configuration.
pub fn check_exportable(config: &TransformerConfig) -> Result<(), HuggingFaceError> {
    let own = model_type_of(config.family())?;
    let options = ExportOptions::default();
    let config = with_required_parameters(config, &*own)?;
    config_fields(&config, &*own, None, &options).map(drop)
}

/// The family in whose form a model can be exported: `preferred`, its own, or else the first of its kind.
///
/// # Errors
/// No family can express the model: the error of `preferred`, or of the model's family.
pub fn exporting_family(
    config: &TransformerConfig,
    preferred: Option<Family>,
) -> Result<Family, HuggingFaceError> {
    let check = |family: Family| {
        let mut raw = config.raw();
        raw.family = family;
        check_exportable(&TransformerConfig::try_from(raw)?)
    };
    let first = preferred.unwrap_or(config.family());
    let Err(error) = check(first) else {
        return Ok(first);
    };
    let others = Family::ALL.into_iter();
    let mut others = others.filter(|other| other.kind() == config.kind());
    let names_its_own = config.kind() == ModelKind::Decoder;
    let other = others.find(|other| !names_its_own && check(*other).is_ok());
    other.ok_or(error)
}

/// Writes a model's `config.json` and weights into an existing directory. The weights or index of an earlier export
/// there are replaced.
///
/// Packed weights are written unchanged, with a `quantization_config`. A packed tied head is written as an untied one,
/// because the embedding is not packed.
///
/// # Errors
/// `transformers` has no model type for the family, the model type cannot express the configuration, the weights are
/// packed in another format than int8, or a file cannot be written.
pub fn export<B: Backend>(
    decoder: &Transformer<B>,
    folder: &Path,
    options: &ExportOptions,
) -> Result<Exported, HuggingFaceError> {
    if decoder.has_adapter() {
        return Err(weights(folder)(WeightsError::Adapter));
    }
    let weights = decoder.weight_format();
    if let Some(format) = weights
        .layers()
        .filter(|format| *format != PackedFormat::Int8)
    {
        let format = format.name();
        return Err(self::weights(folder)(WeightsError::Unpublished { format }));
    }
    let quantization = weights.layers().map(|_| Int8 {
        layout: QuantizedLayout::Words,
        head: weights.head().is_some(),
    });
    let mut raw = decoder.config().raw();
    let held = raw.family;
    raw.family = options.family.unwrap_or(held);
    let own = model_type_of(raw.family)?;
    raw.head.tied &= weights.head().is_none();
    let config = with_required_parameters(&TransformerConfig::try_from(raw)?, &*own)?;
    let fields = config_fields(&config, &*own, quantization, options)?;
    let mut same = config.raw();
    same.family = held;
    let completed = if same == decoder.config().raw() {
        decoder.clone()
    } else {
        decoder.with_config(&config)
    };
    write_config(&fields, folder)?;
    let source = |path: &str| own.source(&config, path);
    let mut parameters = published(&completed, options.element, source);
    if own.is_bare(&config) {
        for parameter in &mut parameters {
            parameter.strip_prefix(own.prefix());
        }
    }
    let parameters = parameters.into_iter();
    let mut tensors: Vec<Tensor<B>> = parameters.map(Tensor::Parameter).collect();
    for (path, parts) in completed.packed_weights() {
        let packed = source(&path).map(|source| PublishedPacked::of(&source, &parts));
        for tensor in packed.into_iter().flatten() {
            add_packed(&mut tensors, tensor);
        }
    }
    write_shards(&tensors, folder, options.shard_bytes)
}

/// Adds a packed tensor, or adds its matrix to an existing tensor of the same name.
fn add_packed<B: Backend>(tensors: &mut Vec<Tensor<B>>, packed: PublishedPacked<B>) {
    let mut shared = tensors.iter_mut().filter_map(|tensor| match tensor {
        Tensor::Packed(held) if held.name() == packed.name() => Some(held),
        _ => None,
    });
    match shared.next() {
        Some(held) => held.add(packed),
        None => tensors.push(Tensor::Packed(packed)),
    }
}

/// A tensor to write.
enum Tensor<B: Backend> {
    Parameter(Published<B>),
    Packed(PublishedPacked<B>),
}

impl<B: Backend> Tensor<B> {
    fn name(&self) -> &str {
        match self {
            Self::Parameter(tensor) => tensor.name(),
            Self::Packed(tensor) => tensor.name(),
        }
    }
}

impl<B: Backend> View for &Tensor<B> {
    fn dtype(&self) -> Dtype {
        match self {
            Tensor::Parameter(tensor) => tensor.dtype(),
            Tensor::Packed(tensor) => tensor.dtype(),
        }
    }

    fn shape(&self) -> &[usize] {
        match self {
            Tensor::Parameter(tensor) => tensor.dims(),
            Tensor::Packed(tensor) => tensor.dims(),
        }
    }

    fn data(&self) -> Cow<'_, [u8]> {
        match self {
            Tensor::Parameter(tensor) => Cow::Owned(tensor.data().into_owned()),
            Tensor::Packed(tensor) => Cow::Owned(tensor.data().into_owned()),
        }
    }

    fn data_len(&self) -> usize {
        match self {
            Tensor::Parameter(tensor) => tensor.data_len(),
            Tensor::Packed(tensor) => tensor.data_len(),
        }
    }
}

/// Adds the parameters that the model type always has.
pub(crate) fn with_required_parameters(
    config: &TransformerConfig,
    own: &dyn ModelType,
) -> Result<TransformerConfig, HuggingFaceError> {
    let mut raw = config.raw();
    own.complete(&mut raw);
    Ok(TransformerConfig::try_from(raw)?)
}

/// Builds the fields of `config.json` and verifies them by reading them back.
pub(super) fn config_fields(
    config: &TransformerConfig,
    own: &dyn ModelType,
    quantization: Option<Int8>,
    options: &ExportOptions,
) -> Result<Map<String, Value>, HuggingFaceError> {
    let not_expressible = |field: String, value: String| HuggingFaceError::NotExpressible {
        model_type: own.name(),
        field,
        value,
    };
    let family = config.family();
    if family.kind() != config.kind() {
        let kind = config.kind().name().to_owned();
        return Err(not_expressible("architecture".to_owned(), kind));
    }
    let mut fields = options.fields.clone();
    // The quantization of the source directory does not describe the exported tensors.
    fields.remove(quantization::FIELD);
    if let Some(quantization) = quantization {
        let Some(exchange) = own.quantized() else {
            return Err(not_expressible("weights".to_owned(), "int8".to_owned()));
        };
        let path = "blocks.0.attention.out.weight";
        let source = own.source(config, path);
        let linear = source.is_some_and(|source| source.is_outputs_first());
        let field = quantization::write(quantization, exchange, config, linear);
        fields.insert(quantization::FIELD.to_owned(), field);
    }
    fields.insert("architectures".to_owned(), json!([own.class(config)]));
    fields.insert("model_type".to_owned(), json!(own.name()));
    fields.insert("dtype".to_owned(), json!(options.element.torch_name()));
    fields.insert("tie_word_embeddings".to_owned(), json!(config.head().tied));
    fields.insert("vocab_size".to_owned(), json!(config.vocab_size()));
    own.write(config, &mut fields);
    let field_error = |field: &str| {
        let value = object(&config.raw()).remove(field).unwrap_or_default();
        not_expressible(field.to_owned(), value.to_string())
    };
    let facts = FileFacts {
        pooler: config.encoder_head() == Some(&EncoderHeadConfig::Pooler),
        untied_head: !config.head().tied,
    };
    let read_back = described_config(family, own, &Fields::new(&fields), facts);
    let read_back = read_back.map_err(|error| match error {
        HuggingFaceError::Field { field, .. } if field.starts_with("rope_parameters.") => {
            field_error("position")
        }
        // The model type's default violates the rule, because the model's value could not be written.
        HuggingFaceError::Config(error) => {
            field_error(error.field.split('.').next().unwrap_or_default())
        }
        other => other,
    })?;
    let (written, read) = (computed(&config.raw()), computed(&read_back.raw()));
    match first_difference(&written, &read, own.unwritten()) {
        Some((field, value)) => Err(not_expressible(field, value)),
        None => Ok(fields),
    }
}

/// Writes a `config.json` into an existing directory.
fn write_config(fields: &Map<String, Value>, folder: &Path) -> Result<(), HuggingFaceError> {
    let text = serde_json::to_string_pretty(fields).unwrap_or_default() + "\n";
    let file = folder.join(CONFIG_FILE);
    fs::write(&file, text).map_err(io(&file))
}

fn write_shards<B: Backend>(
    tensors: &[Tensor<B>],
    folder: &Path,
    shard_bytes: u64,
) -> Result<Exported, HuggingFaceError> {
    let size = |tensor: &&Tensor<B>| tensor.data_len() as u64;
    let mut shards: Vec<Vec<&Tensor<B>>> = vec![Vec::new()];
    let mut held = 0;
    for tensor in tensors {
        let bytes = size(&tensor);
        if held > 0 && held + bytes > shard_bytes {
            shards.push(Vec::new());
            held = 0;
        }
        held += bytes;
        if let Some(shard) = shards.last_mut() {
            shard.push(tensor);
        }
    }
    let bytes = tensors.iter().map(|tensor| size(&tensor)).sum();
    let count = shards.len();
    let mut weight_map = BTreeMap::new();
    let mut files = Vec::new();
    for (number, shard) in shards.iter().enumerate() {
        let name = match count {
            1 => WEIGHTS_FILE.to_owned(),
            _ => format!("model-{:05}-of-{count:05}.safetensors", number + 1),
        };
        let file = folder.join(&name);
        let views = shard.iter().map(|tensor| (tensor.name(), *tensor));
        let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        write(views, metadata, &file).map_err(weights(folder))?;
        weight_map.extend(shard.iter().map(|tensor| (tensor.name(), name.clone())));
        files.push(file);
    }
    if count > 1 {
        let index = json!({"metadata": {"total_size": bytes}, "weight_map": weight_map});
        let file = folder.join(INDEX_FILE);
        let text = serde_json::to_string_pretty(&index).unwrap_or_default() + "\n";
        fs::write(&file, text).map_err(io(&file))?;
    }
    // If both a single file and an index exist, programs disagree on which of them to read.
    let stale = folder.join(if count > 1 { WEIGHTS_FILE } else { INDEX_FILE });
    match fs::remove_file(&stale) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(io(&stale)(error)),
        _ => {}
    }
    Ok(Exported {
        files,
        tensors: tensors.len(),
        bytes,
    })
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> HuggingFaceError + '_ {
    move |source| HuggingFaceError::Io {
        path: path.to_owned(),
        source,
    }
}

fn weights(path: &Path) -> impl Fn(WeightsError) -> HuggingFaceError + '_ {
    move |source| HuggingFaceError::Weights {
        path: path.to_owned(),
        source,
    }
}
