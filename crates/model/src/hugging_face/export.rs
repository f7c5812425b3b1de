//! Writing a Hugging Face directory.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use emberlm_kernels::Backend;

use super::{CONFIG_FILE, INDEX_FILE, WEIGHTS_FILE, exchange_of, read_config};
use crate::checked::DecoderConfig;
use crate::decoder::Decoder;
use crate::error::{HuggingFaceError, WeightsError};
use crate::exchange::Exchange;
use crate::reconfigure::{first_difference, object};
use crate::weights::{Element, Published, published, write};

/// The options of an export.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// The type of the numbers.
    pub element: Element,
    /// The most bytes of tensors in a file; a larger tensor has a file of its own.
    pub shard_bytes: u64,
    /// Fields of the `config.json` that say nothing about what is computed, such as token ids.
    pub fields: Map<String, Value>,
}

/// Numbers in f32, in files of at most 5 GB, without further fields.
impl Default for ExportOptions {
    fn default() -> Self {
        Self {
            element: Element::F32,
            shard_bytes: 5_000_000_000,
            fields: Map::new(),
        }
    }
}

/// The files written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The weights' files, in order.
    pub files: Vec<PathBuf>,
    /// Tensors in them.
    pub tensors: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// Checks that the family's type in `transformers` can express a model, as [`export`] does.
///
/// # Errors
/// `transformers` has no type for the family, or the type cannot express the model.
pub fn check_exportable(config: &DecoderConfig) -> Result<(), HuggingFaceError> {
    let exchange = exchange_of(config.family())?;
    let options = ExportOptions::default();
    described(&completed(config, &exchange)?, &exchange, &options).map(drop)
}

/// Writes `config.json` and the weights of a model into an existing directory. What names the weights of an earlier one
/// there is replaced.
///
/// # Errors
/// The weights are packed, `transformers` has no type for the family, the type cannot express the model, or a file cannot be
/// written.
pub fn export<B: Backend>(
    decoder: &Decoder<B>,
    folder: &Path,
    options: &ExportOptions,
) -> Result<Exported, HuggingFaceError> {
    let packed = |source| HuggingFaceError::Weights {
        path: folder.to_owned(),
        source,
    };
    decoder.check_not_packed().map_err(packed)?;
    let exchange = exchange_of(decoder.config().family())?;
    let config = completed(decoder.config(), &exchange)?;
    let fields = described(&config, &exchange, options)?;
    let whole = if config == *decoder.config() {
        decoder.clone()
    } else {
        decoder.under(&config)
    };
    let text = serde_json::to_string_pretty(&fields).unwrap_or_default() + "\n";
    let file = folder.join(CONFIG_FILE);
    fs::write(&file, text).map_err(io(&file))?;
    let source = |path: &str| config.family().source(&config, path);
    let tensors = published(&whole, options.element, source);
    write_shards(&tensors, folder, options.shard_bytes)
}

/// The model with what its type always has.
fn completed(
    config: &DecoderConfig,
    exchange: &Exchange,
) -> Result<DecoderConfig, HuggingFaceError> {
    let mut raw = config.raw();
    (exchange.complete)(&mut raw);
    Ok(DecoderConfig::try_from(raw)?)
}

/// The `config.json` of a model, proven by reading it again.
fn described(
    config: &DecoderConfig,
    exchange: &Exchange,
    options: &ExportOptions,
) -> Result<Map<String, Value>, HuggingFaceError> {
    let mut fields = options.fields.clone();
    fields.insert("architectures".to_owned(), json!([exchange.architecture]));
    fields.insert("model_type".to_owned(), json!(exchange.model_type));
    fields.insert("dtype".to_owned(), json!(options.element.torch_name()));
    fields.insert("tie_word_embeddings".to_owned(), json!(config.head().tied));
    fields.insert("vocab_size".to_owned(), json!(config.vocab_size()));
    fields.extend((exchange.write)(config));
    let refused = |field: String, value: String| HuggingFaceError::NotExpressible {
        model_type: exchange.model_type,
        field,
        value,
    };
    let own = |field: &str| {
        let value = object(&config.raw()).remove(field).unwrap_or_default();
        refused(field.to_owned(), value.to_string())
    };
    let again = read_config(&fields).map_err(|error| match error {
        HuggingFaceError::Field { field, .. } if field.starts_with("rope_parameters.") => {
            own("position")
        }
        // The rule is broken by a default that stands where the model's own part could not be written.
        HuggingFaceError::Config(error) => own(error.field.split('.').next().unwrap_or_default()),
        other => other,
    })?;
    match first_difference(&config.raw(), &again.raw(), &[]) {
        Some((field, value)) => Err(refused(field, value)),
        None => Ok(fields),
    }
}

fn write_shards<B: Backend>(
    tensors: &[Published<B>],
    folder: &Path,
    shard_bytes: u64,
) -> Result<Exported, HuggingFaceError> {
    let size = |tensor: &&Published<B>| safetensors::View::data_len(tensor) as u64;
    let mut shards: Vec<Vec<&Published<B>>> = vec![Vec::new()];
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
    let mut places = BTreeMap::new();
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
        places.extend(shard.iter().map(|tensor| (tensor.name(), name.clone())));
        files.push(file);
    }
    if count > 1 {
        let index = json!({"metadata": {"total_size": bytes}, "weight_map": places});
        let file = folder.join(INDEX_FILE);
        let text = serde_json::to_string_pretty(&index).unwrap_or_default() + "\n";
        fs::write(&file, text).map_err(io(&file))?;
    }
    // Of a file and an index some programs take the one and some the other.
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
