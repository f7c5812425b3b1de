//! The files of a published model except its weights.

use std::io;
use std::path::{Path, PathBuf};

use emberlm_gguf::GgufFile;
use emberlm_model::ModelKind;
use emberlm_model::hugging_face::HuggingFaceModel;
use emberlm_system::read::{DESCRIPTION_LIMIT, read_text};
use emberlm_tokenizer::chat::{ChatError, ChatTemplate, TOOL_USE};
use emberlm_tokenizer::{
    GgufTokenizer, TOKENIZER_FILE, Tokenizer, TokenizerError, config_warnings,
};
use serde_json::{Map, Value};

use crate::error::ModelError;
use crate::source_files::{GENERATION_CONFIG_FILE, SourceFiles};

/// Tokenizer, chat template and settings of a published model: the files of its Hugging Face directory, or the metadata
/// of its GGUF file.
#[derive(Debug)]
pub(crate) enum PublishedFiles {
    /// A directory.
    Directory(PathBuf),
    /// A file.
    Gguf {
        /// The file's path, for messages.
        name: String,
        /// `None` if the file has no tokenizer. Errors are reported when the tokenizer is used.
        tokenizer: Result<Option<Box<GgufTokenizer>>, TokenizerError>,
    },
}

impl PublishedFiles {
    /// The files of a model.
    pub(crate) fn of(model: &HuggingFaceModel) -> Self {
        match model.gguf() {
            None => Self::Directory(model.path().to_owned()),
            Some(file) => Self::of_gguf(file),
        }
    }

    fn of_gguf(file: &GgufFile) -> Self {
        let tokenizer = GgufTokenizer::read(file.metadata());
        Self::Gguf {
            name: file.path().display().to_string(),
            tokenizer: tokenizer.map(|tokenizer| tokenizer.map(Box::new)),
        }
    }

    /// Warnings about settings of the tokenizer that are ignored.
    pub(crate) fn warnings(&self, kind: ModelKind) -> Vec<String> {
        match self {
            Self::Directory(folder) => config_warnings(folder, kind != ModelKind::Encoder),
            Self::Gguf { tokenizer, .. } => match tokenizer {
                Ok(Some(tokenizer)) => tokenizer.warnings().to_vec(),
                Ok(None) | Err(_) => Vec::new(),
            },
        }
    }

    /// The tokenizer, if there is one.
    pub(crate) fn tokenizer(&self) -> Result<Option<Tokenizer>, ModelError> {
        Ok(match self {
            Self::Directory(folder) => {
                let file = folder.join(TOKENIZER_FILE);
                file.exists()
                    .then(|| Tokenizer::from_file(&file))
                    .transpose()?
            }
            Self::Gguf { name, .. } => {
                let in_file = |error: TokenizerError| TokenizerError::File {
                    path: PathBuf::from(name),
                    reason: error.to_string(),
                };
                let tokenizer = self.gguf_tokenizer().map_err(in_file)?;
                let tokenizer = tokenizer.map(GgufTokenizer::tokenizer).transpose();
                tokenizer.map_err(in_file)?
            }
        })
    }

    fn gguf_tokenizer(&self) -> Result<Option<&GgufTokenizer>, TokenizerError> {
        match self {
            Self::Directory(_) => Ok(None),
            Self::Gguf { tokenizer, .. } => match tokenizer {
                Ok(tokenizer) => Ok(tokenizer.as_deref()),
                Err(error) => Err(error.clone()),
            },
        }
    }

    /// The chat template, if there is one.
    pub(crate) fn chat_template(&self) -> Result<Option<ChatTemplate>, ModelError> {
        self.template(ChatTemplate::beside_model, None)
    }

    /// The chat template for conversations with tools, if there is one.
    pub(crate) fn tool_template(&self) -> Result<Option<ChatTemplate>, ModelError> {
        self.template(ChatTemplate::for_tools_beside, Some(TOOL_USE))
    }

    fn template(
        &self,
        of_folder: TemplateReader,
        which: Option<&str>,
    ) -> Result<Option<ChatTemplate>, ModelError> {
        Ok(match self {
            Self::Directory(folder) => of_folder(folder)?,
            Self::Gguf { name, .. } => match self.gguf_tokenizer()? {
                Some(tokenizer) => tokenizer.chat_template(name, which)?,
                None => None,
            },
        })
    }

    /// The fields of `generation_config.json`; empty if there are none.
    pub(crate) fn generation_config(&self) -> Result<Map<String, Value>, ModelError> {
        match self {
            Self::Directory(folder) => generation_config(folder),
            Self::Gguf { .. } => {
                let tokenizer = self.gguf_tokenizer()?;
                Ok(tokenizer.map_or_else(Map::new, |found| found.generation_config().clone()))
            }
        }
    }

    /// The files that a fine-tuned model keeps. `config` has the fields of `config.json`.
    pub(crate) fn source_files(
        &self,
        config: &Map<String, Value>,
    ) -> Result<SourceFiles, ModelError> {
        Ok(match self {
            Self::Directory(folder) => SourceFiles::of_hugging_face(folder)?,
            Self::Gguf { .. } => {
                let tokenizer = self.gguf_tokenizer()?;
                SourceFiles::of_fields(
                    config,
                    tokenizer.map(GgufTokenizer::config),
                    tokenizer.map(GgufTokenizer::generation_config),
                )
            }
        })
    }
}

/// Loads a template of the model in a folder.
type TemplateReader = fn(&Path) -> Result<Option<ChatTemplate>, ChatError>;

/// The fields of the `generation_config.json` in a model's directory; empty if the file does not exist.
pub(crate) fn generation_config(folder: &Path) -> Result<Map<String, Value>, ModelError> {
    let path = folder.join(GENERATION_CONFIG_FILE);
    let error = |reason: String| ModelError::GenerationConfig {
        path: path.clone(),
        reason,
    };
    match read_text(&path, DESCRIPTION_LIMIT) {
        Ok(text) => serde_json::from_str(&text).map_err(|e| error(e.to_string())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Map::new()),
        Err(e) => Err(error(e.to_string())),
    }
}
