//! A tokenizer on disk: from its file, and from what is written beside data and weights.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use emberlm_system::read::{DESCRIPTION_LIMIT, read_bytes};
use serde_json::Value;

use crate::file::FileVocab;
use crate::tokenizer::Vocab;
use crate::{
    Pattern, RankFile, Tokenizer, TokenizerChoice, TokenizerError, TokenizerKind, TokenizerSpec,
    bounds, sentence_piece,
};

/// The name of a tokenizer's own file, in a dataset, a checkpoint and a Hugging Face model's directory.
pub const TOKENIZER_FILE: &str = "tokenizer.json";

/// The name of a SentencePiece model in a Hugging Face model's directory.
pub(crate) const SENTENCE_PIECE_FILE: &str = "tokenizer.model";

/// The file that Hugging Face's libraries write beside it; only `eos_token` is read.
pub const TOKENIZER_CONFIG_FILE: &str = "tokenizer_config.json";

impl Tokenizer {
    /// The tokenizer that was asked for.
    ///
    /// # Errors
    /// As [`Tokenizer::builtin`] and [`Tokenizer::from_file`].
    pub fn from_choice(choice: &TokenizerChoice) -> Result<Self, TokenizerError> {
        match choice {
            TokenizerChoice::Named(kind) => Self::builtin(*kind),
            TokenizerChoice::File(path) => Self::from_file(path),
        }
    }

    /// The tokenizer of a file, whatever its name: a Hugging Face `tokenizer.json`, a SentencePiece model, which becomes
    /// one, or a rank file of tiktoken's, whose ranks must be a built-in vocabulary's, since it says no more than them.
    ///
    /// # Errors
    /// As [`Tokenizer::from_file_with`] where nothing is said.
    pub fn from_file(path: &Path) -> Result<Self, TokenizerError> {
        Self::from_file_with(path, None, &[])
    }

    /// As [`Tokenizer::from_file`]; `pattern` and `special` say what a rank file does not: how a text is split, and the
    /// special tokens with their ids.
    ///
    /// # Errors
    /// [`TokenizerError::File`] where a file cannot be read, is damaged, asks for what this program does not know, or says
    /// itself what was given; [`TokenizerError::NeedsPattern`] where it needs a pattern.
    pub fn from_file_with(
        path: &Path,
        pattern: Option<Pattern>,
        special: &[(String, u32)],
    ) -> Result<Self, TokenizerError> {
        let at_fault = |reason: String| TokenizerError::File {
            path: path.to_owned(),
            reason,
        };
        let in_file = |error: TokenizerError| at_fault(error.to_string());
        let bytes =
            read_bytes(path, bounds::MOST_FILE).map_err(|error| at_fault(error.to_string()))?;
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
            return Err(at_fault(
                "it says itself how it splits a text and which tokens are special".to_owned(),
            ));
        }
        // A protocol buffer whose first field is a message; no JSON begins so, whose first byte is a brace or a blank before.
        if bytes.starts_with(b"\n") && !bytes.trim_ascii_start().starts_with(b"{") {
            let (json, end_of_text) = sentence_piece::to_json(&bytes).map_err(in_file)?;
            let mut file = FileVocab::new(json).map_err(in_file)?;
            file.set_end_of_text(end_of_text);
            return Ok(Self::new(Vocab::File(Box::new(file))));
        }
        Self::from_json_file(path)
    }

    /// The tokenizer of a Hugging Face `tokenizer.json`.
    ///
    /// A text ends with the `eos_token` of the `tokenizer_config.json` beside it, or where none is given there, with the
    /// special token that has one of the usual names; where there is none, documents are not separated.
    fn from_json_file(path: &Path) -> Result<Self, TokenizerError> {
        let mut file = read_file(path)?;
        let config = path.with_file_name(TOKENIZER_CONFIG_FILE);
        let at_fault = |reason: String| TokenizerError::File {
            path: config.clone(),
            reason,
        };
        match read_bytes(&config, DESCRIPTION_LIMIT) {
            Ok(bytes) => {
                if let Some(name) = eos_token(&bytes).map_err(at_fault)? {
                    let id = file.token_id(&name).ok_or_else(|| {
                        at_fault(format!(
                            "`eos_token` is {name:?}, which {TOKENIZER_FILE} lacks"
                        ))
                    })?;
                    file.set_end_of_text(Some(id));
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(at_fault(error.to_string())),
        }
        Ok(Self::new(Vocab::File(Box::new(file))))
    }

    /// The tokenizer of a `tokenizer.json`'s bytes, whose end of text has one of the usual names.
    ///
    /// # Errors
    /// [`TokenizerError::Format`] where they are damaged, or ask for what this program does not know.
    pub fn from_json(json: impl Into<Vec<u8>>) -> Result<Self, TokenizerError> {
        Ok(Self::new(Vocab::File(Box::new(FileVocab::new(
            json.into(),
        )?))))
    }

    /// The specification by which this tokenizer is found again; where it is not built in, its file belongs beside it:
    /// [`Tokenizer::save`].
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

    /// The tokenizer that `spec` describes, whose file, if it has one, lies in `folder`.
    ///
    /// # Errors
    /// Fails if the file cannot be read or used, if a field of the specification is missing or out of place, or if
    /// size or hash are not those of the tokenizer that is found.
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

    /// The tokenizer that `spec` describes, if it has no file.
    ///
    /// # Errors
    /// As [`Tokenizer::open`]; [`TokenizerError::NeedsFile`] for [`TokenizerKind::File`].
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

    /// Writes the tokenizer's own file, byte for byte as it was read, into `folder`, and returns whether it has one: a
    /// built-in tokenizer needs only its [`TokenizerSpec`].
    ///
    /// # Errors
    /// [`TokenizerError::File`] where it cannot be written.
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
    let at_fault = |reason: String| TokenizerError::File {
        path: path.to_owned(),
        reason,
    };
    let json = read_bytes(path, bounds::MOST_FILE).map_err(|error| at_fault(error.to_string()))?;
    FileVocab::new(json).map_err(|error| at_fault(error.to_string()))
}

/// The name that a `tokenizer_config.json` gives the end of a text: a text, or an object with the text in `content`.
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
        _ => Err("`eos_token` must be a text, or an object with `content`".to_owned()),
    }
}
