//! `emberlm export --format gguf`: writes a decoder as one file that llama.cpp loads.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use burn::tensor::Device;
use emberlm_checkpoint::{Model, ModelKind};
use emberlm_gguf::Value as GgufValue;
use emberlm_kernels::{Backend, TrainingBackend, memory};
use emberlm_model::gguf::FileType;
use emberlm_model::gguf_export::{self, GgufOptions};
use emberlm_model::hugging_face::Exported;
use emberlm_model::{InputImportance, InputProducts, Transformer, WeightFormat};
use emberlm_system::read;
use emberlm_tokenizer::chat::{ChatTemplate, TOOL_USE};
use emberlm_tokenizer::{GgufTokenizerOptions, GgufVocabulary, Tokenizer};
use emberlm_trainer::Rank;
use indicatif::{HumanBytes, HumanCount};
use serde_json::{Value, json};

use super::chat::ChatFiles;
use super::{ExportArgs, RoundingMethod};
use crate::backend::Job;
use crate::error::{CliError, warn};
use crate::model;
use crate::new_file::NewFile;
use crate::output::print;
use crate::progress;

/// Type of a file's matrices by default: the most exact one of half the size.
const DEFAULT_TYPE: FileType = FileType::F16;
/// Maximum tokens of a sequence of the calibration text.
const SEQUENCE: usize = 512;
/// Maximum bytes of a calibration text.
const LONGEST_TEXT: u64 = 256 << 20;

/// Writes the file and prints a summary.
pub(super) fn run(args: &ExportArgs) -> Result<(), CliError> {
    check_options(args)?;
    let file_type = args.file_type.unwrap_or(DEFAULT_TYPE);
    check_method(args, file_type)?;
    let backend = args.backend.choose()?;
    let model = model::open(&args.model)?.of_kind(ModelKind::Decoder)?;
    gguf_export::check_exportable(model.config())?;
    let held = model::held_weights(&model, None);
    if held.stored != WeightFormat::F32 && file_type != FileType::F32 {
        warn(&format!(
            "the weights were rounded to {} before, and are rounded again: export the model that they were made of, \
             if you have it",
            model::weights_name(&model, held)
        ));
    }
    let file = NewFile::begin(&args.out, args.force)?;
    let tokenizer = model.tokenizer()?;
    let sequences = match &args.calibration {
        None => Vec::new(),
        Some(path) => sequences(&model, tokenizer.as_ref(), path)?,
    };
    let metadata = match &tokenizer {
        Some(tokenizer) => vocabulary(&model, tokenizer)?,
        None => vec![(
            "tokenizer.ggml.model".to_owned(),
            GgufValue::String("none".to_owned()),
        )],
    };
    let exported = backend.run(Export {
        model: &model,
        path: file.path(),
        file_type,
        metadata,
        sequences,
        method: args.method.unwrap_or(RoundingMethod::Importance),
    })??;
    file.finish()?;
    print(&format!(
        "{}: {} tensors, {} of {}\n",
        args.out.display(),
        HumanCount(exported.tensors as u64),
        HumanBytes(exported.bytes),
        file_type.name(),
    ))
}

/// Rejects the options of Hugging Face directories.
fn check_options(args: &ExportArgs) -> Result<(), CliError> {
    let options = [
        ("--weights", args.weights.is_some()),
        ("--dtype", args.dtype.is_some()),
        ("--shard-size", args.shard_size.is_some()),
    ];
    let hint = "--type selects the types of a GGUF file";
    super::reject(options, "Hugging Face directories", hint)
}

/// Rejects a method without a calibration text, and GPTQ for types that it does not change.
fn check_method(args: &ExportArgs, file_type: FileType) -> Result<(), CliError> {
    let Some(method) = args.method else {
        return Ok(());
    };
    if args.calibration.is_none() {
        let message = format!("--method {} needs a calibration text", method.name());
        return Err(CliError::usage(message).hint("add --calibration FILE"));
    }
    if method == RoundingMethod::Gptq && !file_type.has_levels() {
        let message = format!(
            "--method gptq is not supported for --type {}: its numbers are not levels of a scale",
            file_type.name()
        );
        return Err(CliError::usage(message).hint("choose a type such as q4_0 or q4_k_m"));
    }
    Ok(())
}

/// The metadata of the tokenizer.
fn vocabulary(model: &Model, tokenizer: &Tokenizer) -> Result<Vec<(String, GgufValue)>, CliError> {
    let mut files = ChatFiles::of(model, tokenizer, None)?;
    for (name, token) in &files.tokens {
        files.config.insert(name.clone(), json!(token));
    }
    set_templates(&mut files, model.path())?;
    let vocabulary = GgufVocabulary::of(
        tokenizer,
        &GgufTokenizerOptions {
            config: &files.config,
            ends: &model.stop_tokens(Some(tokenizer)),
            template: files.template.as_deref(),
            vocab_size: model.config().vocab_size(),
        },
    )?;
    if let Some(difference) = vocabulary.difference {
        warn(difference);
    }
    Ok(vocabulary.metadata)
}

/// Sets the additional templates of a model in the fields of `tokenizer_config.json`.
fn set_templates(files: &mut ChatFiles, model: &Path) -> Result<(), CliError> {
    let mut templates = BTreeMap::new();
    if files.keeps_templates {
        let listed = files.config.get("chat_template").and_then(Value::as_array);
        let listed = listed.into_iter().flatten().filter_map(|template| {
            let source = template["template"].as_str()?;
            Some((template["name"].as_str()?.to_owned(), source.to_owned()))
        });
        templates.extend(listed);
        if model.is_dir() {
            templates.extend(ChatTemplate::additional(model)?);
        }
    }
    let tool_use = files.tool_use.clone();
    templates.extend(tool_use.map(|template| (TOOL_USE.to_owned(), template)));
    let templates = templates
        .into_iter()
        .map(|(name, template)| json!({"name": name, "template": template}));
    let templates = templates.collect();
    files.config.insert("chat_template".to_owned(), templates);
    Ok(())
}

/// The sequences of a calibration text.
fn sequences(
    model: &Model,
    tokenizer: Option<&Tokenizer>,
    path: &Path,
) -> Result<Vec<Vec<u32>>, CliError> {
    let tokenizer = tokenizer.ok_or_else(|| {
        CliError::new("the model has no tokenizer, so a text has no tokens")
            .hint("leave --calibration out")
    })?;
    let text = read::read_text(path, LONGEST_TEXT).map_err(|error| {
        let is_text = error.kind() != ErrorKind::InvalidData;
        let error = CliError::io("read", path)(error);
        match is_text {
            false => error.hint("--calibration takes a text and computes the importance matrix from it; importance matrices of llama.cpp are not supported"),
            true => error,
        }
    })?;
    let ids = tokenizer.encode(&text)?;
    let longest = SEQUENCE.min(model.config().seq_len());
    if ids.len() < longest {
        return Err(CliError::new(format!(
            "{}: the text has {} tokens; must have at least {longest}",
            path.display(),
            ids.len()
        ))
        .hint("give a text of a few thousand words, like those that the model will read"));
    }
    for sequence in ids.chunks_exact(longest) {
        let checked = model.config().check_tokens(sequence);
        checked.map_err(|error| CliError::new(error.to_string()))?;
    }
    let sequences = ids.chunks_exact(longest).map(<[u32]>::to_vec);
    Ok(sequences.collect())
}

struct Export<'a> {
    model: &'a Model,
    path: &'a Path,
    file_type: FileType,
    metadata: Vec<(String, GgufValue)>,
    sequences: Vec<Vec<u32>>,
    method: RoundingMethod,
}

/// Statistics of the calibration text.
#[derive(Default)]
struct Statistics {
    importance: Option<InputImportance>,
    products: Option<InputProducts>,
}

impl Export<'_> {
    /// The statistics of the inputs that the method needs, if there is a text.
    fn statistics<B: Backend>(&self, decoder: &Transformer<B>) -> Statistics {
        if self.sequences.is_empty() {
            return Statistics::default();
        }
        let tokens = self.sequences.iter().map(Vec::len).sum::<usize>();
        let bar = progress::tokens(tokens as u64, Rank::SINGLE);
        let sequences = self.sequences.iter().inspect(|tokens| {
            bar.inc(tokens.len() as u64);
        });
        let statistics = match self.method {
            RoundingMethod::Importance => Statistics {
                importance: Some(InputImportance::over(decoder, sequences.cloned())),
                products: None,
            },
            RoundingMethod::Gptq => {
                let products = InputProducts::over(decoder, sequences.cloned());
                Statistics {
                    importance: Some(products.importance()),
                    products: Some(products),
                }
            }
        };
        bar.finish_and_clear();
        statistics
    }
}

impl Job for Export<'_> {
    type Output = Result<Exported, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        // Writing copies each tensor. Without returning freed memory, the copies would add up.
        memory::returning_freed(|| {
            let decoder = self
                .model
                .decoder_in::<B::InnerBackend>(WeightFormat::F32, &device)?
                .merged();
            let statistics = self.statistics(&decoder);
            let options = GgufOptions {
                file_type: self.file_type,
                name: name(self.model),
                metadata: self.metadata,
                importance: statistics.importance.as_ref(),
                products: statistics.products.as_ref(),
            };
            Ok(gguf_export::export(&decoder, self.path, &options)?)
        })
    }
}

/// The name of a model: that in its GGUF file, or the name of its folder.
fn name(model: &Model) -> String {
    let file = model.hugging_face().and_then(|source| source.gguf());
    let recorded = file.and_then(|file| file.metadata().text("general.name").ok().flatten());
    match recorded {
        Some(name) => name.to_owned(),
        None => {
            let path = std::path::absolute(model.path());
            let path = path.unwrap_or_else(|_| model.path().to_owned());
            let name = path.file_stem().unwrap_or_default();
            name.to_string_lossy().into_owned()
        }
    }
}
