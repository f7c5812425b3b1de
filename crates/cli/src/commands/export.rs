//! `emberlm export`: writes a model as a Hugging Face directory or as a GGUF file.

mod adapter;
mod args;
mod chat;
mod gguf;

use std::fs;
use std::path::{Path, PathBuf};

pub use args::ExportArgs;

use burn::tensor::Device;
use emberlm_checkpoint::model::GENERATION_CONFIG_FILE;
use emberlm_checkpoint::{Model, ModelKind, kind_of};
use emberlm_gguf::is_gguf;
use emberlm_kernels::{PackedFormat, TrainingBackend, memory};
use emberlm_model::WeightFormat;
use emberlm_model::hugging_face::{ExportOptions, Exported, export};
use emberlm_model::weights::Element;
use emberlm_tokenizer::chat::{ADDITIONAL_TEMPLATES, ChatTemplate, TEMPLATE_FILE};
use emberlm_tokenizer::{TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, Tokenizer};
use emberlm_trainer::fit::HeldWeights;
use indicatif::{HumanBytes, HumanCount};
use serde_json::{Map, Value, json};

use crate::backend::{BackendArg, Job};
use crate::error::CliError;
use crate::model;
use crate::new_folder::{NewFolder, as_folder};
use crate::opened_model::OpenedModel;
use crate::output::print;
use chat::{ChatFiles, write_template, write_tokenizer};

/// Files other than weights that are copied unchanged from a Hugging Face directory.
const KEPT_FILES: [&str; 10] = [
    TOKENIZER_FILE,
    TOKENIZER_CONFIG_FILE,
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    TEMPLATE_FILE,
    "chat_template.json",
    GENERATION_CONFIG_FILE,
];

/// Maximum bytes of weights in one file by default.
pub(crate) const SHARD_BYTES: u64 = 5_000_000_000;

emberlm_system::named! {
    /// A format of models.
    pub enum ModelFormat {
        /// A directory of Hugging Face `transformers`.
        HuggingFace = "hugging-face",
        /// A file of llama.cpp.
        Gguf = "gguf",
    }
}

emberlm_system::named! {
    /// A method of rounding matrices by a calibration text.
    pub enum RoundingMethod {
        /// Each weight by the mean square of its input.
        Importance = "importance",
        /// GPTQ: later columns make up for the errors of earlier ones.
        Gptq = "gptq",
    }
}

/// Writes the model and prints a summary.
pub fn run(args: ExportArgs) -> Result<(), CliError> {
    let is_decoder = kind_of(&args.model) == ModelKind::Decoder;
    match args.format {
        ModelFormat::HuggingFace => {}
        ModelFormat::Gguf if is_decoder => return gguf::run(&args),
        ModelFormat::Gguf => {
            let message = "--format gguf is supported for decoders only";
            return Err(CliError::new(message).hint("leave --format out"));
        }
    }
    check_options(&args)?;
    let opened = OpenedModel::open(&args.model)?;
    let model = opened.model();
    if let Some(description) = model.adapter() {
        let options = [
            ("--weights", args.weights.is_some()),
            ("--dtype", args.dtype.is_some()),
            ("--shard-size", args.shard_size.is_some()),
        ];
        reject(
            options,
            "whole models",
            "merge the adapter first: emberlm merge",
        )?;
        return adapter::run(model, description, &args.out, args.force, &args.backend);
    }
    let packed = args.weights.filter(|format| *format != WeightFormat::F32);
    if let (Some(format), false) = (packed, is_decoder) {
        let message = format!("--weights {} is supported for decoders only", format.name());
        return Err(CliError::new(message).hint("leave --weights out"));
    }
    directory(
        model,
        DirectoryOptions {
            out: &args.out,
            force: args.force,
            weights: args.weights,
            dtype: args.dtype,
            shard_bytes: shard_bytes(&args),
            backend: &args.backend,
            merges: false,
        },
    )
}

/// Options of [`directory`].
pub(crate) struct DirectoryOptions<'a> {
    /// The folder to write.
    pub out: &'a Path,
    /// True to replace an existing model.
    pub force: bool,
    /// The format of the weights; by default that of the stored ones.
    pub weights: Option<WeightFormat>,
    /// The type of floating-point weights.
    pub dtype: Option<Element>,
    /// Maximum bytes of weights in one file.
    pub shard_bytes: u64,
    /// The backend.
    pub backend: &'a BackendArg,
    /// True to add the adapter to the weights.
    pub merges: bool,
}

/// Writes a model as a Hugging Face directory, and prints a summary.
pub(crate) fn directory(model: &Model, args: DirectoryOptions<'_>) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let folder = NewFolder::for_model(args.out, args.force)?;
    // A GGUF file has no files to copy: they are written from its metadata.
    let source_directory = model
        .hugging_face()
        .filter(|source| source.gguf().is_none());
    let tokenizer = match source_directory {
        Some(_) => None,
        None => model.tokenizer()?,
    };
    let held = published_weights(model, args.weights);
    let options = ExportOptions {
        element: match args.dtype {
            Some(element) => element,
            // Products of int8 values and scales are exact in f32.
            None if held.format != held.stored && held.stored != WeightFormat::F32 => Element::F32,
            None => model.element()?,
        },
        shard_bytes: args.shard_bytes,
        fields: fields(model, tokenizer.as_ref())?,
        family: None,
    };
    let exported = backend.run(Export {
        model,
        weights: held.format,
        folder: folder.path(),
        options: &options,
        merges: args.merges,
    })??;
    match (source_directory, &tokenizer) {
        (Some(source), _) => {
            keep_files(source.path(), folder.path())?;
            let has_settings = folder.path().join(TOKENIZER_CONFIG_FILE).exists();
            if model.kind() != ModelKind::Decoder
                && !has_settings
                && let Some(tokenizer) = model.tokenizer()?
            {
                let settings = tokenizer.to_tokenizer_config_json(model.config().longest());
                write(folder.path(), TOKENIZER_CONFIG_FILE, settings)?;
            }
            // An adapter can have its own template.
            if model.has_adapter()
                && let Some(tokenizer) = model.tokenizer()?
            {
                write_template(ChatFiles::of(model, &tokenizer, None)?, folder.path())?;
            }
        }
        (None, Some(tokenizer)) => write_tokenizer(model, tokenizer, folder.path())?,
        (None, None) => {}
    }
    match model.kind() {
        // The pooling of sentence-transformers.
        ModelKind::Encoder => drop(model.source_files()?.export(folder.path())?),
        ModelKind::Decoder | ModelKind::EncoderDecoder if source_directory.is_none() => {
            write_generation_config(&options.fields, folder.path())?;
        }
        ModelKind::Decoder | ModelKind::EncoderDecoder => {}
    }
    let files = exported.files.len();
    folder.finish()?;
    let types = match held.format {
        WeightFormat::F32 if args.weights.is_none() && held.format != held.stored => {
            let stored = HeldWeights {
                format: held.stored,
                ..held
            };
            let packed = model::weights_name(model, stored);
            format!("{}, unpacked from {packed},", options.element.name())
        }
        WeightFormat::F32 => options.element.name().to_owned(),
        packed => format!("{} and {}", packed.name(), options.element.name()),
    };
    print(&summary(args.out, &exported, files, &types))
}

/// The format of the weights in a directory: `requested`, or as they are stored. Formats that directories do not have, those of
/// GGUF files, are unpacked to f32, which holds their numbers exactly.
fn published_weights(model: &Model, requested: Option<WeightFormat>) -> HeldWeights {
    let held = model::held_weights(model, requested);
    let packed = held.format.layers();
    if requested.is_some() || packed.is_none_or(|format| format == PackedFormat::Int8) {
        return held;
    }
    HeldWeights {
        format: WeightFormat::F32,
        ..held
    }
}

/// Maximum bytes of weights in one file.
fn shard_bytes(args: &ExportArgs) -> u64 {
    let requested = args.shard_size.map(|size| size.as_u64().max(1));
    requested.unwrap_or(SHARD_BYTES)
}

/// Rejects the given ones of the options that only `models` have.
fn reject<const N: usize>(
    options: [(&str, bool); N],
    models: &str,
    hint: &str,
) -> Result<(), CliError> {
    match options.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((option, _)) => {
            Err(CliError::usage(format!("{option} is an option of {models}")).hint(hint))
        }
    }
}

/// Rejects the options and names of GGUF files.
fn check_options(args: &ExportArgs) -> Result<(), CliError> {
    let options = [
        ("--type", args.file_type.is_some()),
        ("--calibration", args.calibration.is_some()),
        ("--method", args.method.is_some()),
    ];
    reject(options, "GGUF files", "add --format gguf")?;
    match is_gguf(&args.out) && !args.out.is_dir() {
        true => Err(CliError::usage(as_folder("a model", "gguf", &args.out))
            .hint("add --format gguf to write a GGUF file")),
        false => Ok(()),
    }
}

fn summary(out: &Path, exported: &Exported, files: usize, types: &str) -> String {
    format!(
        "{}: {} tensors, {} of {types} in {files} {}\n",
        out.display(),
        HumanCount(exported.tensors as u64),
        HumanBytes(exported.bytes),
        if files == 1 { "file" } else { "files" },
    )
}

/// Extra `config.json` fields: those of the original Hugging Face model, or else the ids of the tokenizer's
/// special tokens.
fn fields(model: &Model, tokenizer: Option<&Tokenizer>) -> Result<Map<String, Value>, CliError> {
    let came = match model.hugging_face() {
        Some(source) => Some(source.fields().clone()),
        None => {
            let model_type = model.config().family().model_type();
            model.source_files()?.config_fields(model_type)
        }
    };
    if let Some(mut fields) = came {
        // The exporter writes these in their newer form.
        const REWRITTEN: [&str; 5] = [
            "torch_dtype",
            "rope_scaling",
            "rope_theta",
            "rotary_pct",
            "rotary_emb_base",
        ];
        fields.retain(|name, _| !REWRITTEN.contains(&name.as_str()));
        return Ok(fields);
    }
    let end = tokenizer.and_then(Tokenizer::end_of_text);
    let end = end.filter(|&id| (id as usize) < model.config().vocab_size());
    let mut fields = Map::new();
    if model.kind() == ModelKind::Decoder {
        let beginning = tokenizer.and_then(|tokenizer| model.beginning(tokenizer));
        let beginning = beginning.filter(|&id| (id as usize) < model.config().vocab_size());
        fields.insert("bos_token_id".to_owned(), json!(beginning));
    }
    if model.kind() != ModelKind::Encoder {
        fields.insert("eos_token_id".to_owned(), json!(end));
    }
    Ok(fields)
}

/// Writes the ids that begin and end a text to `generation_config.json`, unless the model that this one was
/// fine-tuned from has such a file. Without it `transformers` derives the ids from `config.json` and prints a
/// warning.
fn write_generation_config(fields: &Map<String, Value>, folder: &Path) -> Result<(), CliError> {
    let ids = ["bos_token_id", "eos_token_id"].map(|name| (name, fields.get(name)));
    let ids = ids.into_iter().filter_map(|(name, id)| {
        let id = id.filter(|id| !id.is_null())?;
        Some((name.to_owned(), id.clone()))
    });
    let ids: Map<String, Value> = ids.collect();
    if ids.is_empty() || folder.join(GENERATION_CONFIG_FILE).exists() {
        return Ok(());
    }
    let mut text = serde_json::to_vec_pretty(&ids).unwrap_or_default();
    text.push(b'\n');
    write(folder, GENERATION_CONFIG_FILE, text)
}

fn keep_files(from: &Path, to: &Path) -> Result<(), CliError> {
    for name in KEPT_FILES {
        let file = from.join(name);
        if file.exists() {
            fs::copy(&file, to.join(name)).map_err(CliError::io("copy", &file))?;
        }
    }
    for (name, template) in ChatTemplate::additional(from)? {
        let folder = to.join(ADDITIONAL_TEMPLATES);
        fs::create_dir_all(&folder).map_err(CliError::io("create", &folder))?;
        write(&folder, &format!("{name}.jinja"), template.into_bytes())?;
    }
    Ok(())
}

fn write(folder: &Path, name: &str, bytes: Vec<u8>) -> Result<(), CliError> {
    let file: PathBuf = folder.join(name);
    fs::write(&file, bytes).map_err(CliError::io("write", &file))
}

struct Export<'a> {
    model: &'a Model,
    weights: WeightFormat,
    folder: &'a Path,
    options: &'a ExportOptions,
    merges: bool,
}

impl Job for Export<'_> {
    type Output = Result<Exported, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        // Writing copies each tensor. Without returning freed memory, the copies would add up.
        memory::returning_freed(|| {
            let decoder = self
                .model
                .decoder_in::<B::InnerBackend>(self.weights, &device)?;
            let decoder = match self.merges {
                true => decoder.merged(),
                false => decoder,
            };
            Ok(export(&decoder, self.folder, self.options)?)
        })
    }
}
