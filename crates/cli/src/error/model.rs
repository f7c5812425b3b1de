//! Hints for models and checkpoints that cannot be opened.

use std::path::{Path, PathBuf};

use emberlm_checkpoint::{CheckpointError, ModelError, ModelKind, kind_of};
use emberlm_gguf::is_gguf;
use emberlm_model::families;
use emberlm_serve::LoadError;
use emberlm_tokenizer::TokenizerKind;

use super::CliError;
use super::hints::{io, with};
use super::hub::hub_name;
use crate::shell::shell_path;

impl From<CheckpointError> for CliError {
    fn from(error: CheckpointError) -> Self {
        match error {
            CheckpointError::Config(error) => error.into(),
            CheckpointError::Tokenizer(error) => error.into(),
            CheckpointError::Weights(error) => error.into(),
            CheckpointError::HuggingFace(error) => error.into(),
            CheckpointError::Base { .. } => {
                let hint = "move it back, or pass the base model: emberlm … BASE --adapter RUN";
                with(&error, Some(hint.to_owned()))
            }
            CheckpointError::OtherBase { ref base, .. } => {
                let hint = format!(
                    "pass the model that it was trained on: {}",
                    shell_path(base)
                );
                with(&error, Some(hint))
            }
            CheckpointError::File { ref source, .. } => with(&error, io(source)),
            CheckpointError::Damaged { .. } => {
                with(&error, Some("use another checkpoint of the run".to_owned()))
            }
        }
    }
}

impl From<ModelError> for CliError {
    fn from(error: ModelError) -> Self {
        match error {
            ModelError::Checkpoint(error) => error.into(),
            ModelError::HuggingFace(error) => error.into(),
            ModelError::Config(error) => error.into(),
            ModelError::Tokenizer(error) => error.into(),
            ModelError::Chat(error) => error.into(),
            ModelError::Adapter(error) => error.into(),
            error => with(&error, model(&error)),
        }
    }
}

impl From<LoadError> for CliError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Model(error) => error.into(),
            LoadError::Cache(error) => error.into(),
            LoadError::Engine(error) => error.into(),
            LoadError::Thread(_) => with(&error, None),
        }
    }
}

/// Returns hints for a model that cannot be opened or does not fit its use.
fn model(error: &ModelError) -> Vec<String> {
    let hint = match error {
        ModelError::NotFound { path } => return not_found(path),
        ModelError::Read { source, .. } => return io(source).into_iter().collect(),
        ModelError::NotADirectory { path } => return not_a_directory(path),
        ModelError::Gguf { path } => match first_gguf(path) {
            Some(file) => format!("give one of its files: {}", shell_path(&file)),
            None => "give one of its files".to_owned(),
        },
        ModelError::NoCheckpoint { .. } => {
            "a run writes them as it goes and when it ends, Ctrl-C included".to_owned()
        }
        ModelError::Dataset { path } => {
            let path = shell_path(path);
            format!("train one on it: emberlm train --data {path} --out RUN")
        }
        ModelError::NotAModel { .. } => EXPECTED.to_owned(),
        ModelError::AdapterOnly { path, .. } => {
            format!(
                "pass the base model and the adapter: MODEL --adapter {}",
                shell_path(path)
            )
        }
        ModelError::OtherKind { path, found, .. } => {
            let path = shell_path(path);
            match found {
                ModelKind::Decoder => format!("continue a text with it: emberlm generate {path}"),
                ModelKind::Encoder => format!(
                    "embed or classify texts with it: emberlm embed {path} FILE, or emberlm classify {path} FILE"
                ),
                ModelKind::EncoderDecoder => {
                    format!("generate a target with it: emberlm generate {path} --prompt SOURCE")
                }
            }
        }
        ModelError::NotAnAdapter { .. } => {
            "give a directory with an adapter_config.json, or a run that was trained with --adapter"
                .to_owned()
        }
        ModelError::NoTokenizer { path } if kind_of(path) == ModelKind::Encoder => {
            "put the model's tokenizer.json into this directory".to_owned()
        }
        ModelError::NoTokenizer { path } => {
            let path = shell_path(path);
            format!("continue token ids: emberlm generate {path} --tokens 1,2,3")
        }
        ModelError::NoBeginning => "pass a prompt: --prompt TEXT".to_owned(),
        ModelError::OtherTokenizer {
            model, of_model, ..
        } => {
            let tokenizer = match of_model.kind {
                TokenizerKind::File => shell_path(model),
                builtin => builtin.to_string(),
            };
            format!("prepare the text again with --tokenizer {tokenizer}")
        }
        ModelError::SmallVocabulary { .. } => {
            "prepare the text again with the model's tokenizer".to_owned()
        }
        _ => return Vec::new(),
    };
    vec![hint]
}

/// Hint for a path that is not a model.
const EXPECTED: &str = "give a run's directory (the --out of `emberlm train`), one of its checkpoints/step-…, \
    or a Hugging Face model's";

fn not_found(path: &Path) -> Vec<String> {
    match path.to_str().and_then(families::preset) {
        Some(preset) => {
            let name = preset.name;
            vec![
                format!(
                    "`{name}` is a preset, which has no weights yet: emberlm train --preset {name} --data DATASET --out RUN"
                ),
                format!("or initialize one: emberlm new --preset {name} --out MODEL"),
            ]
        }
        None => match path.to_str().and_then(hub_name) {
            Some(name) if !has_parent(path) => {
                vec![format!(
                    "a model on the Hugging Face Hub is named with hf: before it: {name}"
                )]
            }
            _ => vec![EXPECTED.to_owned()],
        },
    }
}

/// True if the folder of a missing path exists.
fn has_parent(path: &Path) -> bool {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    parent.is_some_and(Path::exists)
}

fn not_a_directory(path: &Path) -> Vec<String> {
    let pickled = ["pt", "pth", "bin", "ckpt"];
    let extension = path.extension().and_then(|extension| extension.to_str());
    if extension.is_some_and(|extension| pickled.contains(&extension)) {
        return vec![
            "a PyTorch pickle can run any program when it is opened, so none is read".to_owned(),
            "save it as safetensors where you trust it: in Python, AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(OUT)".to_owned(),
        ];
    }
    let holds =
        |folder: &Path| ["model.json", "config.json"].map(|name| folder.join(name).exists());
    match path.parent() {
        Some(folder) if holds(folder).contains(&true) => {
            let folder = match folder == Path::new("") {
                true => Path::new("."),
                false => folder,
            };
            vec![format!("give its folder: {}", shell_path(folder))]
        }
        _ => vec![EXPECTED.to_owned()],
    }
}

/// The first GGUF file of a directory, by name.
fn first_gguf(folder: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(folder).ok()?.flatten();
    let files = files.map(|file| file.path());
    files.filter(|file| is_gguf(file)).min()
}
