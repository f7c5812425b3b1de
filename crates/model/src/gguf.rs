//! GGUF files as Hugging Face directories, and models as GGUF files.
//!
//! The metadata of a file become the fields of the `config.json` that the families read, and its tensors a
//! `TensorStore` whose names are translated. A file therefore has the same model as the directory that it was
//! converted from, except for what the format does not record.
//!
//! | file | contents |
//! |---|---|
//! | `architecture` | the supported architectures, as data |
//! | `fields`, `metadata` | metadata to fields of `config.json` |
//! | `description` | a configuration to metadata |
//! | `rope` | rotary scaling, which files store as metadata or as factors |
//! | `names` | tensor names |
//! | `store`, `encoding` | tensors of a file, decoded |
//! | `export`, `file_type` | writing files, and the type of each tensor |
//! | `recorded_type` | the name of a file's type |

pub(crate) mod architecture;
pub(crate) mod described;
pub(crate) mod description;
pub(crate) mod encoding;
pub(crate) mod fields;
pub(crate) mod file_type;
mod key_names;
mod metadata;
pub(crate) mod names;
mod recorded_type;
mod rope;
pub(crate) mod rounding;
pub(crate) mod store;

use emberlm_gguf::{GgufFile, TensorInfo, TensorType};
use emberlm_kernels::PackedFormat;
use serde_json::{Map, Value};

pub use file_type::FileType;
pub(crate) use key_names::of_metadata;

pub use recorded_type::type_name;

use self::metadata::Keys;
use self::names::GgufNames;
use self::store::GgufStore;
use crate::error::HuggingFaceError;
use crate::transformer::weight_format::{StoredFormats, WeightFormat};

/// Name of the embedding.
pub(crate) const EMBEDDING: &str = "token_embd.weight";
/// Name of an untied head.
pub(crate) const HEAD: &str = "output.weight";
/// Factors that divide the rotary frequencies. They are read as a setting.
pub(crate) const ROPE_FACTORS: &str = "rope_freqs.weight";

/// Builds the fields of the `config.json` that describes the model of a file.
///
/// # Errors
/// The architecture is not supported, a key is missing, or its value is not supported; the error has the key.
pub fn config_fields(file: &GgufFile) -> Result<Map<String, Value>, HuggingFaceError> {
    fields::read(file).map_err(in_file(file))
}

/// The names of the tensors of a file.
///
/// # Errors
/// The architecture is not supported.
pub(crate) fn names(file: &GgufFile) -> Result<GgufNames, HuggingFaceError> {
    let architecture = architecture::of(file.metadata()).map_err(in_file(file))?;
    Ok(GgufNames::of(architecture, file))
}

/// The tensors of a file.
///
/// # Errors
/// The architecture is not supported, or the number of blocks is missing.
pub(crate) fn store(file: &GgufFile) -> Result<GgufStore<'_>, HuggingFaceError> {
    let architecture = architecture::of(file.metadata()).map_err(in_file(file))?;
    let blocks = Keys::new(file, architecture).blocks();
    let blocks = blocks.map_err(in_file(file))?;
    Ok(GgufStore::new(file, architecture, blocks))
}

/// Returns true if a tensor is a setting and not a weight.
pub(crate) fn is_constant(name: &str) -> bool {
    name == ROPE_FACTORS
}

/// The type that most of the file's elements have.
pub fn main_type(file: &GgufFile) -> TensorType {
    let elements = |kind: TensorType| {
        let tensors = file.tensors().filter(|tensor| tensor.tensor_type == kind);
        tensors
            .map(|tensor| tensor.shape.iter().product::<usize>() as u64)
            .sum::<u64>()
    };
    let most = TensorType::ALL
        .into_iter()
        .max_by_key(|&kind| elements(kind));
    most.unwrap_or(TensorType::F32)
}

/// The format of a decoder that keeps the blocks of weights as stored; f32 if no layer of a block is packed.
pub(crate) fn weight_format(file: &GgufFile) -> WeightFormat {
    format_by(file, |tensor| store::packed_format(tensor.tensor_type))
}

/// The format of a decoder that keeps all matrices as stored, those of 16 bits too.
pub(crate) fn inference_format(file: &GgufFile) -> WeightFormat {
    format_by(file, store::held_format)
}

fn format_by(file: &GgufFile, of: fn(&TensorInfo) -> Option<PackedFormat>) -> WeightFormat {
    let is_layer = |tensor: &&TensorInfo| {
        let name = &tensor.name;
        tensor.shape.len() > 1 && name.starts_with("blk.") && !name.contains(".ffn_gate_inp")
    };
    let mut elements: Vec<(PackedFormat, usize)> = Vec::new();
    for tensor in file.tensors().filter(is_layer) {
        let Some(format) = of(tensor) else { continue };
        let count = tensor.shape.iter().product::<usize>();
        match elements.iter_mut().find(|(held, _)| *held == format) {
            Some((_, held)) => *held += count,
            None => elements.push((format, count)),
        }
    }
    let Some(&(layers, _)) = elements.iter().max_by_key(|(_, count)| count) else {
        return WeightFormat::F32;
    };
    let embedding = file.tensor(EMBEDDING).and_then(of);
    WeightFormat::Stored(StoredFormats {
        layers,
        embedding,
        head: file.tensor(HEAD).map_or(embedding, of),
    })
}

/// Adds the file to an error.
fn in_file(file: &GgufFile) -> impl Fn(emberlm_gguf::GgufError) -> HuggingFaceError + '_ {
    |source| HuggingFaceError::Gguf {
        path: file.path().to_owned(),
        source,
    }
}
