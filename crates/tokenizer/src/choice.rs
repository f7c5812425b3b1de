//! Which tokenizer a user asks for: one by name, or a file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::disk::SENTENCE_PIECE_FILE;
use crate::{TOKENIZER_FILE, TokenizerError, TokenizerKind};

/// A tokenizer as it is asked for: `gpt2`, or the path of a `tokenizer.json`, a SentencePiece model or a rank file of
/// tiktoken's, or of a directory that holds one of the first two, such as a Hugging Face model's. A name goes before a path: a directory called `gpt2` is `./gpt2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenizerChoice {
    /// One of [`TokenizerKind::NAMED`].
    Named(TokenizerKind),
    /// The file at this path, whatever it is.
    File(PathBuf),
}

impl From<TokenizerKind> for TokenizerChoice {
    fn from(kind: TokenizerKind) -> Self {
        Self::Named(kind)
    }
}

impl FromStr for TokenizerChoice {
    type Err = TokenizerError;

    fn from_str(text: &str) -> Result<Self, TokenizerError> {
        if let Ok(kind) = text.parse() {
            return Ok(Self::Named(kind));
        }
        let path = Path::new(text);
        let files = match path.is_dir() {
            true => vec![path.join(TOKENIZER_FILE), path.join(SENTENCE_PIECE_FILE)],
            false => vec![path.to_owned()],
        };
        match files.into_iter().find(|file| file.is_file()) {
            Some(file) => Ok(Self::File(file)),
            None => Err(TokenizerError::UnknownChoice {
                name: text.to_owned(),
                folder: path.is_dir(),
            }),
        }
    }
}

impl fmt::Display for TokenizerChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(kind) => kind.fmt(f),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn names_files_and_folders_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(TOKENIZER_FILE);
        let parse = |path: &Path| path.to_str().unwrap().parse::<TokenizerChoice>();
        assert_eq!(
            "gpt2".parse(),
            Ok(TokenizerChoice::Named(TokenizerKind::Gpt2))
        );
        let message = parse(folder.path()).unwrap_err().to_string();
        assert!(
            message.ends_with("this folder holds no tokenizer.json"),
            "{message}"
        );
        fs::write(&file, "{}").unwrap();
        assert_eq!(
            parse(folder.path()),
            Ok(TokenizerChoice::File(file.clone()))
        );
        assert_eq!(parse(&file), Ok(TokenizerChoice::File(file)));
    }

    #[test]
    fn what_is_neither_is_refused_with_the_choices() {
        let message = "word".parse::<TokenizerChoice>().unwrap_err().to_string();
        assert_eq!(
            message,
            "unknown tokenizer `word`: choose one of gpt2, p50k, cl100k, o200k, char, byte, or give the path of a \
             tokenizer.json or of a folder that holds one"
        );
    }
}
