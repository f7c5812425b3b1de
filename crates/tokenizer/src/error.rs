//! The tokenizer's error type.

use std::path::PathBuf;

use emberlm_system::nearest::nearest;

use crate::kind::SENTENCE_PIECE_FILE;
use crate::{TOKENIZER_FILE, TokenizerKind};

/// An error of this crate. Every variant carries the invalid value and the violated rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenizerError {
    /// The name is not one of [`TokenizerKind::NAMED`].
    #[error(
        "unknown tokenizer `{name}`{}: choose one of {}",
        suggestion(name),
        names()
    )]
    UnknownKind {
        /// The given name.
        name: String,
    },
    /// The choice is neither one of [`TokenizerKind::NAMED`] nor a path.
    #[error(
        "unknown tokenizer `{name}`{}: choose one of {}, or give the path of a {TOKENIZER_FILE} or of a folder that holds one",
        suggestion(name),
        names()
    )]
    UnknownChoice {
        /// The requested name.
        name: String,
    },
    /// The path does not exist.
    #[error("no such file or folder")]
    NoSuchFile,
    /// The folder has no tokenizer.
    #[error("this folder has no {TOKENIZER_FILE} and no {SENTENCE_PIECE_FILE}")]
    NoTokenizerInFolder,
    /// The metadata of a GGUF file describe no usable tokenizer.
    #[error("not a usable tokenizer of a GGUF file: {reason}")]
    Gguf {
        /// The reason, with the key.
        reason: String,
    },
    /// GGUF files cannot express the tokenizer.
    #[error("GGUF files cannot express this tokenizer: {reason}")]
    NotInGguf {
        /// The reason.
        reason: String,
    },
    /// The name is not that of a pattern.
    #[error(
        "unknown pattern `{name}`: choose one of gpt2, cl100k (gpt4), o200k (gpt4o), llama3, qwen2"
    )]
    UnknownPattern {
        /// The given name.
        name: String,
    },
    /// A rank file is damaged or does not define a usable tokenizer.
    #[error(
        "not a usable rank file: {}{reason}",
        match line {
            0 => String::new(),
            line => format!("line {line}: "),
        }
    )]
    RankFile {
        /// The 1-based line, or 0 if the error does not concern a single line.
        line: usize,
        /// The reason.
        reason: String,
    },
    /// A rank file does not specify a pattern, and its ranks do not match a built-in vocabulary.
    #[error("{}: a rank file has no splitting pattern, and its ranks are not those of a built-in tokenizer", path.display())]
    NeedsPattern {
        /// The file.
        path: PathBuf,
    },
    /// A SentencePiece model is damaged or cannot be represented exactly in a `tokenizer.json`.
    #[error("not a usable SentencePiece model: {reason}")]
    SentencePiece {
        /// The reason.
        reason: String,
    },
    /// A tokenizer cannot be trained.
    #[error("cannot train a tokenizer: {reason}")]
    Training {
        /// The reason.
        reason: String,
    },
    /// A character tokenizer was requested without its alphabet.
    #[error(
        "the char tokenizer has no built-in vocabulary: it is built from the characters of a corpus"
    )]
    NeedsAlphabet,
    /// The alphabet of a character tokenizer is empty.
    #[error("a char tokenizer needs at least one character")]
    EmptyAlphabet,
    /// A tokenizer from a file was requested without the file.
    #[error("this tokenizer is not built in: it is read from its {TOKENIZER_FILE}")]
    NeedsFile,
    /// A list of words is not a valid vocabulary.
    #[error("not a usable vocabulary: {reason}")]
    Vocabulary {
        /// The reason.
        reason: String,
    },
    /// A tokenizer file cannot be read, written or used.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A `tokenizer.json` is damaged or uses an unsupported feature.
    #[error("not a usable {TOKENIZER_FILE}: {reason}")]
    Format {
        /// The reason.
        reason: String,
    },
    /// The tokenizer from a `tokenizer.json` failed to encode a text.
    #[error("{TOKENIZER_FILE} cannot encode this text: {reason}")]
    Encode {
        /// The error message of the `tokenizers` crate.
        reason: String,
    },
    /// A text contains a character outside the alphabet of a character tokenizer.
    #[error(
        "character {character:?} at position {position} is not among the {vocab_size} characters of this tokenizer"
    )]
    UnknownCharacter {
        /// The character.
        character: char,
        /// The 0-based position in characters.
        position: usize,
        /// The size of the alphabet.
        vocab_size: usize,
    },
    /// An id is not smaller than the vocabulary size.
    #[error("token id {id} is out of range: {kind} has ids 0 to {}", vocab_size - 1)]
    IdOutOfRange {
        /// The id.
        id: u32,
        /// The tokenizer's kind.
        kind: TokenizerKind,
        /// The vocabulary size, at least 1.
        vocab_size: usize,
    },
    /// An id is within the vocabulary size but unassigned.
    #[error("token id {id} is unassigned in {kind}")]
    IdUnassigned {
        /// The id.
        id: u32,
        /// The tokenizer's kind.
        kind: TokenizerKind,
    },
    /// A specification has an alphabet that its kind does not use, or lacks one that its kind requires.
    #[error("tokenizer `{kind}`: `alphabet` must be {}", if *present { "absent" } else { "given" })]
    SpecAlphabet {
        /// The specification's kind.
        kind: TokenizerKind,
        /// True if the specification has an alphabet.
        present: bool,
    },
    /// A specification's vocabulary size differs from that of the tokenizer.
    #[error("tokenizer `{kind}`: `vocab_size` is {found}, but this tokenizer has {expected} ids")]
    SpecVocabSize {
        /// The specification's kind.
        kind: TokenizerKind,
        /// The size in the specification.
        found: usize,
        /// The tokenizer's size.
        expected: usize,
    },
    /// A specification has an end-of-text id that its tokenizer cannot have.
    #[error(
        "tokenizer `{kind}`: `end_of_text` is {found}, which is no id of this tokenizer's that can be chosen"
    )]
    SpecEndOfText {
        /// The specification's kind.
        kind: TokenizerKind,
        /// The id in the specification.
        found: u32,
    },
    /// A specification's hash differs from that of the tokenizer.
    #[error(
        "tokenizer `{kind}`: `hash` is {found}, but this tokenizer's vocabulary has {expected}"
    )]
    SpecHash {
        /// The specification's kind.
        kind: TokenizerKind,
        /// The hash in the specification.
        found: String,
        /// The tokenizer's hash.
        expected: String,
    },
}

fn names() -> String {
    TokenizerKind::NAMED.map(TokenizerKind::name).join(", ")
}

/// Returns a suggestion for a mistyped name, in parentheses.
fn suggestion(name: &str) -> String {
    match nearest(name, TokenizerKind::NAMED.map(TokenizerKind::name)) {
        Some(name) => format!(" (did you mean `{name}`?)"),
        None => String::new(),
    }
}
