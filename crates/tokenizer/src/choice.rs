//! Which tokenizer a user asks for: one by name, or a file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::{TOKENIZER_FILE, TokenizerError, TokenizerKind};

/// A tokenizer as it is asked for: `gpt2`, or the path of a `tokenizer.json` or of a directory that holds one, such as a
/// Hugging Face model's. A name goes before a path: a directory called `gpt2` is `./gpt2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenizerChoice {
    /// One of [`TokenizerKind::NAMED`].
    Named(TokenizerKind),
    /// The `tokenizer.json` at this path.
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
        let file = match path.is_dir() {
            true => path.join(TOKENIZER_FILE),
            false => path.to_owned(),
        };
        match file.is_file() {
            true => Ok(Self::File(file)),
            false => Err(TokenizerError::UnknownChoice {
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
            "unknown tokenizer `word`: choose one of gpt2, cl100k, o200k, char, byte, or give the path of a \
             tokenizer.json or of a folder that holds one"
        );
    }
}
