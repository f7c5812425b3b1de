//! Errors between text and token ids.

use std::path::PathBuf;

use emberlm_system::nearest::nearest;

use crate::disk::SENTENCE_PIECE_FILE;
use crate::{TOKENIZER_FILE, TokenizerKind};

/// An error of this crate; each carries the value at fault and the rule it breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenizerError {
    /// A tokenizer was asked for by a name that is none of [`TokenizerKind::NAMED`].
    #[error("unknown tokenizer `{name}`{}: choose one of {}", meant(name), names())]
    UnknownKind {
        /// The name as given.
        name: String,
    },
    /// A tokenizer was asked for by what is neither such a name nor looks like a path.
    #[error(
        "unknown tokenizer `{name}`{}: choose one of {}, or give the path of a {TOKENIZER_FILE} or of a folder that holds one",
        meant(name),
        names()
    )]
    UnknownChoice {
        /// The requested name.
        name: String,
    },
    /// A tokenizer's path does not exist.
    #[error("no such file or folder")]
    NoSuchFile,
    /// A tokenizer was asked for by a folder that has none.
    #[error("this folder has no {TOKENIZER_FILE} and no {SENTENCE_PIECE_FILE}")]
    NoTokenizerInFolder,
    /// A tokenizer was asked for by a GGUF file.
    #[error(
        "GGUF files are not supported yet: give the {TOKENIZER_FILE} of the model that it was made from"
    )]
    Gguf,
    /// A pattern was asked for by a name that is none's.
    #[error(
        "unknown pattern `{name}`: choose one of gpt2, cl100k (gpt4), o200k (gpt4o), llama3, qwen2"
    )]
    UnknownPattern {
        /// The name as given.
        name: String,
    },
    /// A file of ranks is damaged, or cannot be made a tokenizer of.
    #[error(
        "not a usable rank file: {}{reason}",
        match line {
            0 => String::new(),
            line => format!("line {line}: "),
        }
    )]
    RankFile {
        /// The line, from 1; 0 where it is not one line that is at fault.
        line: usize,
        /// The reason.
        reason: String,
    },
    /// A file of ranks does not say by which pattern a text is split, and its ranks are no built-in vocabulary's.
    #[error("{}: a rank file does not say how it splits a text, and its ranks are no built-in tokenizer's", path.display())]
    NeedsPattern {
        /// The file.
        path: PathBuf,
    },
    /// A SentencePiece model is damaged, or has what a `tokenizer.json` cannot say exactly.
    #[error("not a usable SentencePiece model: {reason}")]
    SentencePiece {
        /// The reason.
        reason: String,
    },
    /// A tokenizer cannot be trained.
    #[error("cannot train a tokenizer: {reason}")]
    Training {
        /// The obstacle.
        reason: String,
    },
    /// A character tokenizer was asked for without the characters that it is made of.
    #[error("the char tokenizer has no built-in vocabulary: it is made from a corpus's characters")]
    NeedsAlphabet,
    /// A character tokenizer was to be made of no characters.
    #[error("a char tokenizer needs at least one character")]
    EmptyAlphabet,
    /// A tokenizer that a file holds was asked for without the file.
    #[error("this tokenizer is not built in: it is read from its {TOKENIZER_FILE}")]
    NeedsFile,
    /// Words that are no vocabulary.
    #[error("not a usable vocabulary: {reason}")]
    Vocabulary {
        /// The reason.
        reason: String,
    },
    /// A file of a tokenizer cannot be read, written or used.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The bytes of a `tokenizer.json` are damaged, or ask for what this program does not know.
    #[error("not a usable {TOKENIZER_FILE}: {reason}")]
    Format {
        /// The reason.
        reason: String,
    },
    /// A `tokenizer.json` cannot turn a text into ids.
    #[error("{TOKENIZER_FILE} cannot encode this text: {reason}")]
    Encode {
        /// The error of the `tokenizers` crate.
        reason: String,
    },
    /// A text holds a character that the character tokenizer's vocabulary lacks.
    #[error(
        "character {character:?} at position {position} is not among the {vocab_size} characters of this tokenizer"
    )]
    UnknownCharacter {
        /// The character.
        character: char,
        /// Its place in the text, in characters from 0.
        position: usize,
        /// The number of characters that the tokenizer knows.
        vocab_size: usize,
    },
    /// An id is not below the vocabulary's size.
    #[error("token id {id} is out of range: {kind} has ids 0 to {}", vocab_size - 1)]
    IdOutOfRange {
        /// The id.
        id: u32,
        /// The tokenizer's kind.
        kind: TokenizerKind,
        /// The vocabulary's size; at least 1.
        vocab_size: usize,
    },
    /// An id is below the vocabulary's size, but the vocabulary leaves it unassigned.
    #[error("token id {id} stands for nothing: {kind} leaves it unassigned")]
    IdUnassigned {
        /// The id.
        id: u32,
        /// The tokenizer's kind.
        kind: TokenizerKind,
    },
    /// A specification has an alphabet although its kind has none, or lacks the one that its kind needs.
    #[error("tokenizer `{kind}`: `alphabet` must be {}", if *present { "absent" } else { "given" })]
    SpecAlphabet {
        /// The specification's kind.
        kind: TokenizerKind,
        /// True if the specification has an alphabet.
        present: bool,
    },
    /// A specification's vocabulary size is not that of the tokenizer it names.
    #[error("tokenizer `{kind}`: `vocab_size` is {found}, but this tokenizer has {expected} ids")]
    SpecVocabSize {
        /// The specification's kind.
        kind: TokenizerKind,
        /// The size in the specification.
        found: usize,
        /// The tokenizer's size.
        expected: usize,
    },
    /// A specification names an end of text that its tokenizer cannot have.
    #[error(
        "tokenizer `{kind}`: `end_of_text` is {found}, which is no id of this tokenizer's that can be chosen"
    )]
    SpecEndOfText {
        /// The specification's kind.
        kind: TokenizerKind,
        /// The id in the specification.
        found: u32,
    },
    /// A specification's hash is not that of the tokenizer it names.
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

/// The name that a mistyped one probably stands for, in brackets.
fn meant(name: &str) -> String {
    match nearest(name, TokenizerKind::NAMED.map(TokenizerKind::name)) {
        Some(name) => format!(" (did you mean `{name}`?)"),
        None => String::new(),
    }
}
