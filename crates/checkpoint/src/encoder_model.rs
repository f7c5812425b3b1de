//! Opens a directory of an encoder: a Hugging Face directory, with the files of sentence-transformers if it has them, a
//! run or a checkpoint.
//!
//! | file | read for |
//! |---|---|
//! | `config.json`, `model.safetensors` | the encoder |
//! | `tokenizer.json` | token ids, special tokens |
//! | `modules.json` | pooling and normalization; without it, the mean of all states, normalized |
//! | `1_Pooling/config.json` | the pooling |
//! | `sentence_bert_config.json` | the longest text in tokens; without it, the encoder's positions |

use std::io;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use emberlm_kernels::Backend;
use emberlm_model::EncoderConfig;
use emberlm_model::encoder::{HuggingFaceEncoder, Pooling};
use emberlm_system::read::{DESCRIPTION_LIMIT, read_text};
use emberlm_tokenizer::{SequenceEncoder, TOKENIZER_FILE, Tokenizer};
use serde_json::Value;

use crate::embedder::Embedder;
use crate::error::{CheckpointError, ModelError};
use crate::kind::model_folder;

/// The file that lists the modules of sentence-transformers.
const MODULES_FILE: &str = "modules.json";
/// The file with the longest text in tokens.
const SENTENCE_FILE: &str = "sentence_bert_config.json";

/// An encoder whose configuration and tokenizer have been read.
#[derive(Debug)]
pub struct EncoderModel {
    source: HuggingFaceEncoder,
    tokenizer: Option<Tokenizer>,
    /// The longest text, in tokens.
    longest: usize,
    pooling: Pooling,
    normalize: bool,
    passed_over: Vec<CheckpointError>,
}

impl EncoderModel {
    /// Opens the encoder at `path`. Its weights are read by [`EncoderModel::embedder`] only.
    ///
    /// # Errors
    /// `path` holds no encoder, a file is damaged or cannot be read, or `modules.json` lists a module that is not
    /// supported. A run with damaged checkpoints opens at the newest intact one; see [`EncoderModel::passed_over`].
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let (path, passed_over) = model_folder(path)?;
        let path = path.as_path();
        let source = HuggingFaceEncoder::open(path)?;
        let tokenizer = tokenizer_beside(path, source.config().vocab_size())?;
        let limit = source.config().seq_len();
        let longest = longest_text(path)?.map_or(limit, |longest| longest.min(limit));
        let (pooling, normalize) = modules(path)?.unwrap_or((Pooling::Mean, true));
        Ok(Self {
            source,
            tokenizer,
            longest,
            pooling,
            normalize,
            passed_over,
        })
    }

    /// The errors of damaged checkpoints that are newer than the opened one, newest first.
    pub fn passed_over(&self) -> &[CheckpointError] {
        &self.passed_over
    }

    /// The encoder's configuration.
    pub fn config(&self) -> &EncoderConfig {
        self.source.config()
    }

    /// The Hugging Face directory.
    pub fn hugging_face(&self) -> &HuggingFaceEncoder {
        &self.source
    }

    /// Takes the Hugging Face directory, to train the encoder.
    pub fn into_hugging_face(self) -> HuggingFaceEncoder {
        self.source
    }

    /// The tokenizer, if the directory has one.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        self.tokenizer.as_ref()
    }

    /// The tokenizer, for operations on text.
    ///
    /// # Errors
    /// The directory has none.
    pub fn require_tokenizer(&self) -> Result<&Tokenizer, ModelError> {
        let error = || ModelError::NoTokenizer {
            path: self.source.path().to_owned(),
        };
        self.tokenizer.as_ref().ok_or_else(error)
    }

    /// The longest text in tokens, special tokens included.
    pub fn longest_text(&self) -> usize {
        self.longest
    }

    /// Describes the model in one line.
    pub fn about(&self) -> String {
        format!(
            "a Hugging Face encoder of type {}",
            self.source.model_type()
        )
    }

    /// The pooling of a text's states.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// True if embeddings have length 1.
    pub fn normalizes(&self) -> bool {
        self.normalize
    }

    /// Reads the weights.
    ///
    /// # Errors
    /// The directory has no tokenizer, or a tensor is missing, unexpected, or of another shape or type.
    pub fn embedder<B: Backend>(&self, device: &Device<B>) -> Result<Embedder<B>, ModelError> {
        let sequences = SequenceEncoder::new(self.require_tokenizer()?, self.longest);
        Ok(Embedder {
            encoder: self.source.encoder(device)?,
            sequences,
            pooling: self.pooling,
            normalize: self.normalize,
        })
    }
}

/// The tokenizer in a model's directory, if there is one.
///
/// # Errors
/// The file is damaged or cannot be read, or has more ids than the model's `vocab_size`.
pub(crate) fn tokenizer_beside(
    path: &Path,
    vocab_size: usize,
) -> Result<Option<Tokenizer>, ModelError> {
    let file = path.join(TOKENIZER_FILE);
    if !file.exists() {
        return Ok(None);
    }
    let tokenizer = Tokenizer::from_file(&file)?;
    match tokenizer.vocab_size() {
        ids if ids > vocab_size => Err(ModelError::SmallVocabulary {
            dataset: file,
            ids,
            model: path.to_owned(),
            vocab_size,
        }),
        _ => Ok(Some(tokenizer)),
    }
}

/// The pooling and normalization of `modules.json`. `None` without this file.
fn modules(path: &Path) -> Result<Option<(Pooling, bool)>, ModelError> {
    let file = path.join(MODULES_FILE);
    let Some(modules) = read_json(&file)? else {
        return Ok(None);
    };
    let refuse = |reason: String| ModelError::Modules {
        path: file.clone(),
        reason,
    };
    let modules = modules
        .as_array()
        .ok_or_else(|| refuse("must be a list".to_owned()))?;
    let (mut pooling, mut normalize) = (Pooling::Mean, false);
    for (number, module) in modules.iter().enumerate() {
        let kind = module["type"].as_str().unwrap_or_default();
        let folder = module["path"].as_str().unwrap_or_default();
        match (number, kind.rsplit('.').next().unwrap_or_default()) {
            (0, "Transformer") if folder.is_empty() => {}
            (0, "Transformer") => {
                let reason = format!("module 0 is in the folder `{folder}`; open that folder");
                return Err(refuse(reason));
            }
            (1, "Pooling") => pooling = read_pooling(&path.join(folder).join("config.json"))?,
            (2.., "Normalize") => normalize = true,
            // Acts in training only.
            (2.., "Dropout") => {}
            _ => {
                return Err(refuse(format!(
                    "module {number} of type `{kind}` is not supported"
                )));
            }
        }
    }
    Ok(Some((pooling, normalize)))
}

/// The pooling of a `Pooling` module's `config.json`.
fn read_pooling(file: &Path) -> Result<Pooling, ModelError> {
    let refuse = |reason: String| ModelError::Modules {
        path: file.to_owned(),
        reason,
    };
    let Some(config) = read_json(file)? else {
        return Err(refuse("the file is missing".to_owned()));
    };
    const MODES: [(&str, &str, Option<Pooling>); 6] = [
        ("pooling_mode_cls_token", "cls", Some(Pooling::First)),
        ("pooling_mode_mean_tokens", "mean", Some(Pooling::Mean)),
        ("pooling_mode_max_tokens", "max", Some(Pooling::Max)),
        (
            "pooling_mode_mean_sqrt_len_tokens",
            "mean_sqrt_len_tokens",
            Some(Pooling::MeanSqrtLength),
        ),
        ("pooling_mode_lasttoken", "lasttoken", Some(Pooling::Last)),
        ("pooling_mode_weightedmean_tokens", "weightedmean", None),
    ];
    let named = config["pooling_mode"].as_str();
    let mut modes = MODES
        .iter()
        .filter(|(flag, name, _)| config[*flag] == true || named == Some(*name));
    match (modes.next(), modes.next()) {
        (Some((_, _, Some(pooling))), None) => Ok(*pooling),
        (Some((flag, _, None)), None) => Err(refuse(format!("{flag} is not supported"))),
        (Some((first, ..)), Some((second, ..))) => {
            let reason = format!("{first} and {second} together are not supported");
            Err(refuse(reason))
        }
        (None, _) => Err(refuse(match named {
            Some(name) => format!("pooling_mode = {name} is not supported"),
            None => "exactly one pooling_mode must be set".to_owned(),
        })),
    }
}

/// `max_seq_length`, if the file is there and sets it.
fn longest_text(path: &Path) -> Result<Option<usize>, ModelError> {
    let file = path.join(SENTENCE_FILE);
    let Some(config) = read_json(&file)? else {
        return Ok(None);
    };
    match &config["max_seq_length"] {
        Value::Null => Ok(None),
        value => match value
            .as_u64()
            .and_then(|tokens| usize::try_from(tokens).ok())
        {
            Some(tokens @ 1..) => Ok(Some(tokens)),
            _ => Err(ModelError::Modules {
                path: file,
                reason: format!("max_seq_length = {value} must be a whole number of at least 1"),
            }),
        },
    }
}

/// Reads a JSON file. `None` if it does not exist.
fn read_json(file: &Path) -> Result<Option<Value>, ModelError> {
    let path = || PathBuf::from(file);
    match read_text(file, DESCRIPTION_LIMIT) {
        Ok(text) => serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| ModelError::Modules {
                path: path(),
                reason: error.to_string(),
            }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ModelError::Read {
            path: path(),
            source,
        }),
    }
}
