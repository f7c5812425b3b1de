//! The tokenizer selected by the user: a built-in one by name, or a file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::kind::SENTENCE_PIECE_FILE;
use crate::{TOKENIZER_FILE, TokenizerError, TokenizerKind};

impl FromStr for TokenizerKind {
    type Err = TokenizerError;

    fn from_str(name: &str) -> Result<Self, TokenizerError> {
        // OpenAI's name for GPT-2's vocabulary.
        let name = if name == "r50k" { "gpt2" } else { name };
        Self::NAMED
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| TokenizerError::UnknownKind {
                name: name.to_owned(),
            })
    }
}

/// A user's choice of tokenizer: a name such as `gpt2`, or a path. The path is that of a `tokenizer.json`, a
/// SentencePiece model, a tiktoken rank file, a GGUF file, or a directory with one of the first two, such as a Hugging Face
/// model directory. Names take precedence: use `./gpt2` for a directory called `gpt2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenizerChoice {
    /// One of [`TokenizerKind::NAMED`].
    Named(TokenizerKind),
    /// A file of any supported format.
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
        if let Some(file) = files.into_iter().find(|file| file.is_file()) {
            return Ok(Self::File(file));
        }
        Err(match path.is_dir() {
            true => TokenizerError::NoTokenizerInFolder,
            false if looks_like_a_path(path) => TokenizerError::NoSuchFile,
            false => TokenizerError::UnknownChoice {
                name: text.to_owned(),
            },
        })
    }
}

/// Returns true for a path with several components or with the extension of a tokenizer file.
fn looks_like_a_path(path: &Path) -> bool {
    let absolute_or_nested = path.components().nth(1).is_some() || path.starts_with(".");
    absolute_or_nested || has_extension(path, &["json", "model", "tiktoken", "bpe", "txt", "gguf"])
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| {
        extensions
            .iter()
            .any(|known| extension.eq_ignore_ascii_case(known))
    })
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
    fn names_files_and_folders_are_distinguished() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(TOKENIZER_FILE);
        let parse = |path: &Path| path.to_str().unwrap().parse::<TokenizerChoice>();
        assert_eq!(
            "gpt2".parse(),
            Ok(TokenizerChoice::Named(TokenizerKind::Gpt2))
        );
        let message = parse(folder.path()).unwrap_err().to_string();
        assert_eq!(
            message,
            "this folder has no tokenizer.json and no tokenizer.model"
        );
        fs::write(&file, "{}").unwrap();
        assert_eq!(
            parse(folder.path()),
            Ok(TokenizerChoice::File(file.clone()))
        );
        assert_eq!(parse(&file), Ok(TokenizerChoice::File(file)));
    }

    #[test]
    fn missing_paths_are_not_reported_as_unknown_names() {
        for path in [
            "./nope.json",
            "./nope",
            "a/b",
            "/nowhere",
            "nope.json",
            "spm.model",
            "m.gguf",
            ".",
        ] {
            let message = path.parse::<TokenizerChoice>().unwrap_err().to_string();
            let expected = match path {
                "." => "this folder has no tokenizer.json and no tokenizer.model",
                _ => "no such file or folder",
            };
            assert_eq!(message, expected, "{path}");
        }
    }

    #[test]
    fn unknown_names_list_the_choices() {
        let message = "word".parse::<TokenizerChoice>().unwrap_err().to_string();
        assert_eq!(
            message,
            "unknown tokenizer `word`: choose one of gpt2, p50k, cl100k, o200k, char, byte, or give the path of a \
             tokenizer.json or of a folder that holds one"
        );
    }
}
