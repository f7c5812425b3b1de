//! Files that a fine-tuned model keeps from its original Hugging Face directory.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use emberlm_model::hugging_face::CONFIG_FILE;
use emberlm_system::read::{DESCRIPTION_LIMIT, read_bytes};
use emberlm_tokenizer::TOKENIZER_CONFIG_FILE;
use serde_json::{Map, Value};

use crate::error::CheckpointError;

/// File in which `transformers` stores a model's recommended sampling settings.
pub const GENERATION_CONFIG_FILE: &str = "generation_config.json";

/// Name of the original `config.json` in a checkpoint. The different name prevents the checkpoint from being opened
/// as a Hugging Face directory.
const SOURCE_CONFIG: &str = "hugging_face_config.json";

/// Settings of the tokenizer, of chat, of generation and of sentence-transformers, which an export writes unchanged.
const SETTINGS_FILES: [&str; 12] = [
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "additional_chat_templates/tool_use.jinja",
    "additional_chat_templates/rag.jinja",
    GENERATION_CONFIG_FILE,
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
];

/// Contents of the files with a published model's settings of tokenizer, chat, generation and sentence-transformers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFiles(BTreeMap<&'static str, Vec<u8>>);

impl SourceFiles {
    /// Returns the names of the files in a checkpoint.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        SETTINGS_FILES.into_iter().chain([SOURCE_CONFIG])
    }

    /// Reads the files of a Hugging Face directory.
    ///
    /// # Errors
    /// A file exists but cannot be read.
    pub fn of_hugging_face(folder: &Path) -> Result<Self, CheckpointError> {
        Self::read(folder, CONFIG_FILE)
    }

    /// The files with these fields: `config.json`, `tokenizer_config.json` and `generation_config.json`.
    pub(crate) fn of_fields(
        config: &Map<String, Value>,
        tokenizer: Option<&Map<String, Value>>,
        generation: Option<&Map<String, Value>>,
    ) -> Self {
        let files = [
            (SOURCE_CONFIG, Some(config)),
            (TOKENIZER_CONFIG_FILE, tokenizer),
            (GENERATION_CONFIG_FILE, generation),
        ];
        let files = files.into_iter().filter_map(|(name, fields)| {
            let fields = fields.filter(|fields| !fields.is_empty())?;
            let mut json = serde_json::to_vec_pretty(fields).ok()?;
            json.push(b'\n');
            Some((name, json))
        });
        Self(files.collect())
    }

    /// Reads the files of a checkpoint. There are none unless it was fine-tuned from a Hugging Face directory.
    ///
    /// # Errors
    /// A file exists but cannot be read.
    pub fn of_checkpoint(folder: &Path) -> Result<Self, CheckpointError> {
        Self::read(folder, SOURCE_CONFIG)
    }

    fn read(folder: &Path, config: &str) -> Result<Self, CheckpointError> {
        let mut files = BTreeMap::new();
        let settings = SETTINGS_FILES.into_iter().map(|name| (name, name));
        for (name, file) in settings.chain([(SOURCE_CONFIG, config)]) {
            let path = folder.join(file);
            match read_bytes(&path, DESCRIPTION_LIMIT) {
                Ok(bytes) => {
                    files.insert(name, bytes);
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(CheckpointError::file("read", &path)(error)),
            }
        }
        Ok(Self(files))
    }

    /// Writes the files into a checkpoint and returns their names.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<Vec<&'static str>, CheckpointError> {
        self.write_some(folder, |_| true)
    }

    /// Writes the files except `config.json` into a Hugging Face directory and returns their names.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn export(&self, folder: &Path) -> Result<Vec<&'static str>, CheckpointError> {
        self.write_some(folder, |name| name != SOURCE_CONFIG)
    }

    fn write_some(
        &self,
        folder: &Path,
        selects: impl Fn(&str) -> bool,
    ) -> Result<Vec<&'static str>, CheckpointError> {
        let mut names = Vec::new();
        for (name, bytes) in self.0.iter().filter(|(name, _)| selects(name)) {
            let path = folder.join(name);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(CheckpointError::file("create", parent))?;
            }
            fs::write(&path, bytes).map_err(CheckpointError::file("write", &path))?;
            names.push(*name);
        }
        Ok(names)
    }

    /// The `model_type` of the original `config.json`.
    pub fn model_type(&self) -> Option<String> {
        let fields: Map<String, Value> = serde_json::from_slice(self.0.get(SOURCE_CONFIG)?).ok()?;
        fields.get("model_type")?.as_str().map(str::to_owned)
    }

    /// The fields of the original `tokenizer_config.json`.
    pub fn tokenizer_config(&self) -> Option<Map<String, Value>> {
        serde_json::from_slice(self.0.get(TOKENIZER_CONFIG_FILE)?).ok()
    }

    /// The fields of the original `config.json`, if its model type is `model_type`.
    pub fn config_fields(&self, model_type: Option<&str>) -> Option<Map<String, Value>> {
        let config = self.0.get(SOURCE_CONFIG)?;
        let fields: Map<String, Value> = serde_json::from_slice(config).ok()?;
        let is_same_type = fields.get("model_type").and_then(Value::as_str) == model_type;
        is_same_type.then_some(fields)
    }
}
