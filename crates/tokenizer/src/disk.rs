//! Loads tokenizers from files and specifications, and saves them.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use emberlm_gguf::{GgufFile, is_gguf};
use emberlm_system::read::{DESCRIPTION_LIMIT, check_text, read_bytes};
use serde_json::Value;

use crate::file::FileVocab;
use crate::tokenizer::Vocab;
use crate::{
    GgufTokenizer, Pattern, RankFile, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, Tokenizer,
    TokenizerChoice, TokenizerError, TokenizerKind, TokenizerSpec, bounds, sentence_piece,
};

impl Tokenizer {
    /// Loads the chosen tokenizer.
    ///
    /// # Errors
    /// See [`Tokenizer::builtin`] and [`Tokenizer::from_file`].
    pub fn from_choice(choice: &TokenizerChoice) -> Result<Self, TokenizerError> {
        match choice {
            TokenizerChoice::Named(kind) => Self::builtin(*kind),
            TokenizerChoice::File(path) => Self::from_file(path),
        }
    }

    /// Loads a tokenizer from a file of any name: a Hugging Face `tokenizer.json`, a SentencePiece model (which
    /// is converted to one), a GGUF file, or a tiktoken rank file. A rank file contains only ranks, so they must be those of
    /// a built-in vocabulary.
    ///
    /// # Errors
    /// See [`Tokenizer::from_file_with`], called without a pattern and special tokens.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, TokenizerError> {
        Self::from_file_with(path.as_ref(), None, &[])
    }

    /// Like [`Tokenizer::from_file`], but `pattern` and `special` supply the information that a rank file
    /// lacks: the pattern that splits texts, and the special tokens with their ids.
    ///
    /// # Errors
    /// [`TokenizerError::File`] if the file cannot be read, is damaged, uses an unsupported feature, or already
    /// specifies a pattern and special tokens. [`TokenizerError::NeedsPattern`] if it needs a pattern.
    pub fn from_file_with(
        path: &Path,
        pattern: Option<Pattern>,
        special: &[(String, u32)],
    ) -> Result<Self, TokenizerError> {
        let file_error = |reason: String| TokenizerError::File {
            path: path.to_owned(),
            reason,
        };
        let in_file = |error: TokenizerError| file_error(error.to_string());
        if is_gguf(path) {
            let file = GgufFile::open(path).map_err(|error| file_error(error.to_string()))?;
            let tokenizer = GgufTokenizer::read(file.metadata()).map_err(in_file)?;
            let tokenizer =
                tokenizer.ok_or_else(|| file_error("it has no tokenizer".to_owned()))?;
            return tokenizer.tokenizer().map_err(in_file);
        }
        let bytes =
            read_bytes(path, bounds::MAX_FILE).map_err(|error| file_error(error.to_string()))?;
        check_text(&bytes).map_err(|error| file_error(error.to_string()))?;
        if RankFile::is_one(&bytes) {
            let ranks = RankFile::read(&bytes).map_err(in_file)?;
            return match (pattern, ranks.builtin()) {
                (Some(pattern), _) => ranks.tokenizer(pattern, special).map_err(in_file),
                (None, Some(builtin)) if special.is_empty() => Ok(builtin),
                (None, _) => Err(TokenizerError::NeedsPattern {
                    path: path.to_owned(),
                }),
            };
        }
        if pattern.is_some() || !special.is_empty() {
            return Err(file_error(
                "it already defines its pattern and its special tokens".to_owned(),
            ));
        }
        // A SentencePiece model is a protocol buffer whose first field is a message (tag byte 0x0A, `\n`). JSON
        // starts with a brace, perhaps after white space.
        if bytes.starts_with(b"\n") && !bytes.trim_ascii_start().starts_with(b"{") {
            let (json, end_of_text) = sentence_piece::to_json(&bytes).map_err(in_file)?;
            let mut file = FileVocab::new(json).map_err(in_file)?;
            file.set_end_of_text(end_of_text);
            return Ok(Self::new(Vocab::File(Box::new(file))));
        }
        Self::from_json_file(path)
    }

    /// Loads a Hugging Face `tokenizer.json`.
    ///
    /// The end of text is the `eos_token` of the `tokenizer_config.json` in the same directory. If that
    /// specifies none, it is the special token with one of the usual names. Without any, documents are not
    /// separated.
    fn from_json_file(path: &Path) -> Result<Self, TokenizerError> {
        let mut file = read_file(path)?;
        let config = path.with_file_name(TOKENIZER_CONFIG_FILE);
        let file_error = |reason: String| TokenizerError::File {
            path: config.clone(),
            reason,
        };
        match read_bytes(&config, DESCRIPTION_LIMIT) {
            Ok(bytes) => {
                check_text(&bytes).map_err(|error| file_error(error.to_string()))?;
                if let Some(name) = eos_token(&bytes).map_err(file_error)? {
                    let id = file.token_id(&name).ok_or_else(|| {
                        file_error(format!(
                            "`eos_token` is {name:?}, which {TOKENIZER_FILE} lacks"
                        ))
                    })?;
                    file.set_end_of_text(Some(id));
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(file_error(error.to_string())),
        }
        Ok(Self::new(Vocab::File(Box::new(file))))
    }

    /// Creates a tokenizer from the contents of a `tokenizer.json`. The end of text is the special token with
    /// one of the usual names.
    ///
    /// # Errors
    /// [`TokenizerError::Format`] if the contents are damaged or use an unsupported feature.
    pub fn from_json(json: impl Into<Vec<u8>>) -> Result<Self, TokenizerError> {
        Ok(Self::new(Vocab::File(Box::new(FileVocab::new(
            json.into(),
        )?))))
    }

    /// [`Tokenizer::from_json`] with the id of the end of text, if it has one.
    pub(crate) fn from_json_with_end(
        json: impl Into<Vec<u8>>,
        end_of_text: Option<u32>,
    ) -> Result<Self, TokenizerError> {
        let mut file = FileVocab::new(json.into())?;
        if end_of_text.is_some() {
            file.set_end_of_text(end_of_text);
        }
        Ok(Self::new(Vocab::File(Box::new(file))))
    }

    /// Returns the specification that identifies this tokenizer. A tokenizer that is not built in also needs
    /// its file next to it: see [`Tokenizer::save`].
    pub fn spec(&self) -> TokenizerSpec {
        let (alphabet, end_of_text) = match self.vocab() {
            Vocab::Char(chars) => (Some(chars.alphabet()), None),
            Vocab::File(file) => (None, file.end_of_text()),
            Vocab::Bpe(_) | Vocab::Byte => (None, None),
        };
        TokenizerSpec {
            kind: self.kind(),
            vocab_size: self.vocab_size(),
            hash: self.hash(),
            alphabet,
            end_of_text,
        }
    }

    /// Loads the tokenizer that `spec` describes, from its file in `folder` if it has one.
    ///
    /// # Errors
    /// The file cannot be read or used, a field of the specification is missing or unexpected, or the
    /// vocabulary size or hash differs from the specification.
    pub fn open(spec: &TokenizerSpec, folder: &Path) -> Result<Self, TokenizerError> {
        if spec.kind != TokenizerKind::File {
            return Self::from_spec(spec);
        }
        if spec.alphabet.is_some() {
            return Err(TokenizerError::SpecAlphabet {
                kind: spec.kind,
                present: true,
            });
        }
        let mut file = read_file(&folder.join(TOKENIZER_FILE))?;
        if !file.set_end_of_text(spec.end_of_text) {
            return Err(TokenizerError::SpecEndOfText {
                kind: spec.kind,
                found: spec.end_of_text.unwrap_or_default(),
            });
        }
        let tokenizer = Self::new(Vocab::File(Box::new(file)));
        tokenizer.check(spec)?;
        Ok(tokenizer)
    }

    /// Creates the tokenizer that `spec` describes, if it needs no file.
    ///
    /// # Errors
    /// See [`Tokenizer::open`]. [`TokenizerError::NeedsFile`] for [`TokenizerKind::File`].
    pub fn from_spec(spec: &TokenizerSpec) -> Result<Self, TokenizerError> {
        let tokenizer = match (spec.kind, &spec.alphabet) {
            (TokenizerKind::Char, Some(alphabet)) => Self::char_from_alphabet(alphabet.chars())?,
            (TokenizerKind::Char, None) | (_, Some(_)) => {
                return Err(TokenizerError::SpecAlphabet {
                    kind: spec.kind,
                    present: spec.alphabet.is_some(),
                });
            }
            (kind, None) => Self::builtin(kind)?,
        };
        if let Some(found) = spec.end_of_text {
            return Err(TokenizerError::SpecEndOfText {
                kind: spec.kind,
                found,
            });
        }
        tokenizer.check(spec)?;
        Ok(tokenizer)
    }

    /// Writes the tokenizer's file into `folder`, byte for byte as it was read. Returns false without writing
    /// for a built-in tokenizer, which needs only its [`TokenizerSpec`].
    ///
    /// # Errors
    /// [`TokenizerError::File`] if the file cannot be written.
    pub fn save(&self, folder: &Path) -> Result<bool, TokenizerError> {
        let Vocab::File(file) = self.vocab() else {
            return Ok(false);
        };
        let path = folder.join(TOKENIZER_FILE);
        match fs::write(&path, file.json()) {
            Ok(()) => Ok(true),
            Err(error) => Err(TokenizerError::File {
                path,
                reason: error.to_string(),
            }),
        }
    }

    fn check(&self, spec: &TokenizerSpec) -> Result<(), TokenizerError> {
        if spec.vocab_size != self.vocab_size() {
            return Err(TokenizerError::SpecVocabSize {
                kind: spec.kind,
                found: spec.vocab_size,
                expected: self.vocab_size(),
            });
        }
        let expected = self.hash();
        if spec.hash != expected {
            return Err(TokenizerError::SpecHash {
                kind: spec.kind,
                found: spec.hash.clone(),
                expected,
            });
        }
        Ok(())
    }
}

fn read_file(path: &Path) -> Result<FileVocab, TokenizerError> {
    let file_error = |reason: String| TokenizerError::File {
        path: path.to_owned(),
        reason,
    };
    let json = read_bytes(path, bounds::MAX_FILE).map_err(|error| file_error(error.to_string()))?;
    check_text(&json).map_err(|error| file_error(error.to_string()))?;
    FileVocab::new(json).map_err(|error| file_error(error.to_string()))
}

/// Returns the `eos_token` of a `tokenizer_config.json`: a string, or an object with the string in `content`.
fn eos_token(config: &[u8]) -> Result<Option<String>, String> {
    let config: Value =
        serde_json::from_slice(config).map_err(|error| format!("it is not JSON: {error}"))?;
    let token = match &config["eos_token"] {
        Value::Object(token) => token.get("content").unwrap_or(&Value::Null),
        token => token,
    };
    match token {
        Value::Null => Ok(None),
        Value::String(name) => Ok(Some(name.clone())),
        _ => Err("`eos_token` must be a string, or an object with `content`".to_owned()),
    }
}
