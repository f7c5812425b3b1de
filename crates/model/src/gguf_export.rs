//! Writes GGUF files.
//!
//! The metadata are built from the configuration. Before anything is written, they are read back as those of a file. A
//! setting that a file cannot record is an error, so no file describes another model than the one in it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use emberlm_gguf::{GgufError, GgufHeader, GgufWriter, TensorType, Value};
use emberlm_kernels::Backend;
use emberlm_kernels::cpu::matrix::Matrix;

use crate::config::difference::first_difference_by;
use crate::error::HuggingFaceError;
use crate::gguf::architecture::{self, Architecture};
use crate::gguf::described::Planned;
use crate::gguf::file_type::{FileType, Traits};
use crate::gguf::names::GgufNames;
use crate::gguf::rounding::Rounding;
use crate::gguf::store::{EXPERT_BIASES, element, packed_format};
use crate::gguf::{ROPE_FACTORS, description, fields};
use crate::hugging_face::{Exported, model_type_of, read_config, with_required_parameters};
use crate::transformer::calibration::{InputImportance, InputProducts};
use crate::transformer::checked::TransformerConfig;
use crate::transformer::model::Transformer;
use crate::transformer::reconfigure::{TRAINING_ONLY, computed};
use crate::weights::{Element, Published, published};

/// Relative difference up to which a number in single precision stands for a setting.
const TOLERANCE: f64 = 1e-6;
/// Version of the block formats.
const QUANTIZATION_VERSION: u32 = 2;
/// End of the names of tensors with all experts of a layer.
const ALL_EXPERTS: &str = "_exps.weight";

/// Options of [`export`].
#[derive(Clone, Debug)]
pub struct GgufOptions<'a> {
    /// Types of the tensors.
    pub file_type: FileType,
    /// Name of the model.
    pub name: String,
    /// Further metadata, such as the tokenizer's.
    pub metadata: Vec<(String, Value)>,
    /// Importance of the inputs of linear layers. Quantized weights are chosen by it.
    pub importance: Option<&'a InputImportance>,
    /// Products of the inputs of linear layers. With them, GPTQ chooses the levels of quantized weights, and
    /// [`Self::importance`] only the scales. Types without levels do not depend on them.
    pub products: Option<&'a InputProducts>,
}

/// Checks that files have an architecture for a model.
///
/// # Errors
/// There is none for the family.
pub fn check_exportable(config: &TransformerConfig) -> Result<(), HuggingFaceError> {
    architecture_of(config).map(drop)
}

/// Names of the families that files have an architecture for.
pub fn exportable_families() -> impl Iterator<Item = &'static str> {
    architecture::families().map(crate::Family::name)
}

fn architecture_of(config: &TransformerConfig) -> Result<&'static Architecture, HuggingFaceError> {
    let family = config.family();
    architecture::of_family(family).ok_or_else(|| HuggingFaceError::NoArchitecture {
        family: family.name(),
    })
}

/// Writes a model as one file, which replaces an existing one. Packed weights must be unpacked first.
///
/// # Errors
/// Files have no architecture for the family, or it cannot express the configuration; the weights are packed; the file
/// cannot be written.
pub fn export<B: Backend>(
    decoder: &Transformer<B>,
    path: &Path,
    options: &GgufOptions<'_>,
) -> Result<Exported, HuggingFaceError> {
    let in_file = |source: GgufError| HuggingFaceError::Gguf {
        path: path.to_owned(),
        source,
    };
    let io = |source: std::io::Error| HuggingFaceError::Io {
        path: path.to_owned(),
        source,
    };
    decoder
        .check_not_packed()
        .map_err(|source| HuggingFaceError::Weights {
            path: path.to_owned(),
            source,
        })?;
    let architecture = architecture_of(decoder.config())?;
    if decoder
        .linears()
        .any(|(_, linear)| linear.adapter.is_some())
    {
        return Err(HuggingFaceError::NotDescribed {
            architecture: architecture.name,
            reason: "its layers have adapters, which must be merged first".to_owned(),
        });
    }
    let own = model_type_of(decoder.config().family())?;
    let config = with_required_parameters(decoder.config(), &*own)?;
    let completed = match config == *decoder.config() {
        true => decoder.clone(),
        false => decoder.with_config(&config),
    };
    let names = GgufNames::written(architecture);
    let source = |path: &str| names.source(&config, path);

    let mut header = GgufHeader::new();
    let mut fields = serde_json::Map::new();
    own.write(&config, &mut fields);
    let factors = description::write(&config, &fields, architecture, &mut header);
    general(&mut header, options);
    let mut vectors = Vec::new();
    if let Some(factors) = factors {
        header
            .add_tensor(ROPE_FACTORS, &[factors.len()], TensorType::F32)
            .map_err(in_file)?;
        vectors.push((ROPE_FACTORS.to_owned(), factors));
    }
    let traits = traits(&config, architecture, options);
    let mut tensors = Vec::new();
    for tensor in published(&completed, Element::F32, source) {
        let shape = shape_in_file(&tensor, &config);
        let kind = options.file_type.tensor_type(tensor.name(), &shape, traits);
        header
            .add_tensor(tensor.name(), &shape, kind)
            .map_err(in_file)?;
        tensors.push((tensor, kind));
    }
    let planned = Planned {
        header: &header,
        vectors: &vectors,
    };
    check_description(&config, architecture, &planned)?;

    let layers = layers_of_tensors(&completed, source);
    let mut rounding = Rounding::new(options.importance, options.products);
    let (count, bytes) = (header.tensors().len(), total_bytes(&header));
    let out = BufWriter::new(File::create(path).map_err(io)?);
    let mut writer = header.write_to(out).map_err(io)?;
    for (_, values) in &vectors {
        writer.write(&encoded(values, Element::F32)).map_err(io)?;
    }
    let none = Vec::new();
    for (tensor, kind) in &tensors {
        let layers = layers.get(tensor.name()).unwrap_or(&none);
        let tensor = (tensor, *kind, layers.as_slice());
        write_tensor(&mut writer, tensor, architecture, &mut rounding).map_err(io)?;
    }
    let out = writer.finish().map_err(io)?;
    out.into_inner()
        .map_err(|error| io(error.into_error()))?
        .sync_all()
        .map_err(io)?;
    Ok(Exported {
        files: vec![path.to_owned()],
        tensors: count,
        bytes,
    })
}

fn total_bytes(header: &GgufHeader) -> u64 {
    let bytes = header.tensors().iter().map(|tensor| tensor.bytes());
    bytes.sum()
}

/// Adds the keys that describe the file.
fn general(header: &mut GgufHeader, options: &GgufOptions<'_>) {
    header.insert("general.type", Value::String("model".to_owned()));
    header.insert("general.name", Value::String(options.name.clone()));
    header.insert("general.file_type", Value::U32(options.file_type.id()));
    header.insert(
        "general.quantization_version",
        Value::U32(QUANTIZATION_VERSION),
    );
    for (key, value) in &options.metadata {
        header.insert(key.as_str(), value.clone());
    }
}

fn traits(
    config: &TransformerConfig,
    architecture: &Architecture,
    options: &GgufOptions<'_>,
) -> Traits {
    Traits {
        layers: config.n_layers(),
        grouped: config.heads() / config.kv_heads().max(1),
        experts: config.experts().map_or(0, |experts| experts.count),
        tied: config.head().tied,
        wide_head: architecture.wide_head,
        calibrated: options.importance.is_some(),
    }
}

/// The shape of a tensor: the matrices and vectors of experts are a dimension of their tensor.
fn shape_in_file<B: Backend>(tensor: &Published<B>, config: &TransformerConfig) -> Vec<usize> {
    match (tensor.dims(), config.experts()) {
        (&[rows, columns], Some(experts)) if tensor.name().ends_with(ALL_EXPERTS) => {
            vec![experts.count, rows / experts.count, columns]
        }
        (&[elements], Some(experts)) if tensor.name().ends_with(EXPERT_BIASES) => {
            vec![experts.count, elements / experts.count]
        }
        (shape, _) => shape.to_vec(),
    }
}

/// Checks that the model that a file describes is the one that is written.
fn check_description(
    config: &TransformerConfig,
    architecture: &Architecture,
    planned: &Planned<'_>,
) -> Result<(), HuggingFaceError> {
    let not_recorded = |(field, value): (String, String)| HuggingFaceError::NotRecorded {
        architecture: architecture.name,
        field,
        value,
    };
    let unreadable = |source: GgufError| HuggingFaceError::NotDescribed {
        architecture: architecture.name,
        reason: source.to_string(),
    };
    if let Some(experts) = config.experts()
        && !experts.dense_layers.is_empty()
    {
        let value = format!("{:?}", experts.dense_layers);
        return Err(not_recorded(("experts.dense_layers".to_owned(), value)));
    }
    let fields = fields::read(planned).map_err(unreadable)?;
    let found = read_config(&fields)?;
    let difference = first_difference_by(
        &computed(&config.raw()),
        &computed(&found.raw()),
        // An architecture may be that of several families.
        &[&TRAINING_ONLY[..], &["family"]].concat(),
        same_setting,
    );
    difference.map_or(Ok(()), |difference| Err(not_recorded(difference)))
}

/// Compares two settings, with numbers in single precision.
fn same_setting(one: Option<&serde_json::Value>, other: Option<&serde_json::Value>) -> bool {
    use serde_json::Value as Json;

    match (one, other) {
        (Some(Json::Number(one)), Some(Json::Number(other))) => {
            let (Some(one), Some(other)) = (one.as_f64(), other.as_f64()) else {
                return false;
            };
            (one - other).abs() <= TOLERANCE * one.abs()
        }
        (Some(Json::Object(one)), Some(Json::Object(other))) => {
            let mut names = one.keys().chain(other.keys());
            names.all(|name| same_setting(one.get(name), other.get(name)))
        }
        (Some(Json::Array(one)), Some(Json::Array(other))) => {
            let mut pairs = one.iter().zip(other);
            one.len() == other.len()
                && pairs.all(|(one, other)| same_setting(Some(one), Some(other)))
        }
        _ => one == other,
    }
}

/// The paths of the linear layers of tensors, by name. A tensor of several layers, such as one with all experts, has one
/// entry for each, in order.
fn layers_of_tensors<B: Backend>(
    decoder: &Transformer<B>,
    source: impl Fn(&str) -> Option<crate::weights::map::Source>,
) -> HashMap<String, Vec<String>> {
    let mut found: HashMap<String, Vec<String>> = HashMap::new();
    for (path, _) in decoder.linears() {
        let source = source(&format!("{path}.weight"));
        for name in source.iter().flat_map(|source| source.names()) {
            let layers = found.entry(name.to_owned()).or_default();
            layers.push(path.clone());
        }
    }
    found
}

/// Writes the data of a tensor of some layers.
fn write_tensor<B: Backend, W: Write>(
    writer: &mut GgufWriter<W>,
    (tensor, kind, layers): (&Published<B>, TensorType, &[String]),
    architecture: &Architecture,
    rounding: &mut Rounding<'_>,
) -> std::io::Result<()> {
    let mut values = tensor.values().values;
    architecture.encoding(tensor.name()).encode(&mut values);
    let Some(format) = packed_format(kind) else {
        let element = element(kind).unwrap_or(Element::F32);
        return writer.write(&encoded(&values, element));
    };
    let columns = tensor.dims().last().copied().unwrap_or(1).max(1);
    let rows = values.len() / columns;
    let parts = layers.len().max(1);
    let order = tensor.input_order();
    let each = rows / parts;
    for part in 0..parts {
        let rows = Matrix::row_major(
            &values[part * each * columns..(part + 1) * each * columns],
            each,
            columns,
        );
        let layer = layers.get(part).map(String::as_str);
        writer.write(rounding.pack(format, rows, layer, order.as_deref()).bytes())?;
    }
    Ok(())
}

/// The bytes of values of single elements.
fn encoded(values: &[f32], element: Element) -> Vec<u8> {
    let mut bytes = vec![0; values.len() * element.size()];
    for (index, &value) in values.iter().enumerate() {
        element.write(value, &mut bytes, index);
    }
    bytes
}
