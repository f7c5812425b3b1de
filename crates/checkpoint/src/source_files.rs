//! The files that a fine-tuned model keeps of the Hugging Face directory that it was trained from.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use emberlm_model::hugging_face::CONFIG_FILE;
use emberlm_system::read::{DESCRIPTION_LIMIT, read_bytes};
use serde_json::{Map, Value};

use crate::error::CheckpointError;

/// The name that the source's `config.json` has in a checkpoint, which is not a Hugging Face directory itself.
const SOURCE_CONFIG: &str = "hugging_face_config.json";

/// The files on tokens, conversations and generation, which an export writes as they came.
const KEPT: [&str; 6] = [
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
];

/// The description of a published model's tokens, chat template and generation settings: its files, byte for byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFiles(BTreeMap<&'static str, Vec<u8>>);

impl SourceFiles {
    /// The names of the files in a checkpoint.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        KEPT.into_iter().chain([SOURCE_CONFIG])
    }

    /// Reads the files of a Hugging Face directory.
    ///
    /// # Errors
    /// A file is there and cannot be read.
    pub fn of_hugging_face(folder: &Path) -> Result<Self, CheckpointError> {
        Self::read(folder, CONFIG_FILE)
    }

    /// Reads the files of a checkpoint, which has none unless it was trained from a Hugging Face directory.
    ///
    /// # Errors
    /// A file is there and cannot be read.
    pub fn of_checkpoint(folder: &Path) -> Result<Self, CheckpointError> {
        Self::read(folder, SOURCE_CONFIG)
    }

    fn read(folder: &Path, config: &str) -> Result<Self, CheckpointError> {
        let mut files = BTreeMap::new();
        let kept = KEPT.into_iter().map(|name| (name, name));
        for (name, file) in kept.chain([(SOURCE_CONFIG, config)]) {
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

    /// Writes the files into a checkpoint; returns their names.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<Vec<&'static str>, CheckpointError> {
        self.write_some(folder, |_| true)
    }

    /// Writes the files into a Hugging Face directory, without its `config.json`; returns their names.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn export(&self, folder: &Path) -> Result<Vec<&'static str>, CheckpointError> {
        self.write_some(folder, |name| name != SOURCE_CONFIG)
    }

    fn write_some(
        &self,
        folder: &Path,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<&'static str>, CheckpointError> {
        let mut names = Vec::new();
        for (name, bytes) in self.0.iter().filter(|(name, _)| wanted(name)) {
            let path = folder.join(name);
            fs::write(&path, bytes).map_err(CheckpointError::file("write", &path))?;
            names.push(*name);
        }
        Ok(names)
    }

    /// The fields of the source's `config.json`, if it is a model of this type.
    pub fn config_fields(&self, model_type: Option<&str>) -> Option<Map<String, Value>> {
        let config = self.0.get(SOURCE_CONFIG)?;
        let fields: Map<String, Value> = serde_json::from_slice(config).ok()?;
        let same = fields.get("model_type").and_then(Value::as_str) == model_type;
        same.then_some(fields)
    }
}
