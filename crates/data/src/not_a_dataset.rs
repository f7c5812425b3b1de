//! The file that makes a folder a dataset, and identification of a path that has none, for error messages.

use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// The manifest's file name in a dataset directory.
pub const MANIFEST_FILE: &str = "dataset.json";

/// The kind of a path that is not a dataset folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotADataset {
    /// The path does not exist.
    Missing,
    /// The `dataset.json` file of a dataset.
    Manifest,
    /// A file of token ids, such as `train.bin`.
    TokenFile,
    /// A text file, which could be prepared.
    TextFile,
    /// Another file.
    OtherFile,
    /// The directory of a run or a model.
    Model,
    /// Another folder.
    Folder,
}

/// The number of bytes examined to recognize text.
const HEAD_BYTES: u64 = 4096;

impl NotADataset {
    /// Identifies the file or folder at `path`, which is not a dataset folder.
    pub(crate) fn at(path: &Path) -> Self {
        let Ok(metadata) = fs::metadata(path) else {
            return Self::Missing;
        };
        let holds = |name: &str| path.join(name).exists();
        if metadata.is_dir() {
            let mut names = ["model.json", "config.json", "config.toml", "events.jsonl"].iter();
            return match names.any(|name| holds(name)) {
                true => Self::Model,
                false => Self::Folder,
            };
        }
        if path.ends_with(MANIFEST_FILE) {
            return Self::Manifest;
        }
        if path.extension().is_some_and(|extension| extension == "bin") {
            return Self::TokenFile;
        }
        match is_text(path) {
            true => Self::TextFile,
            false => Self::OtherFile,
        }
    }
}

impl fmt::Display for NotADataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "does not exist",
            Self::Manifest => "is a file of a dataset, not the dataset's folder",
            Self::TokenFile => "is a file of token ids, not a dataset's folder",
            Self::TextFile => "is a text file, not a dataset's folder",
            Self::OtherFile => "is a file, not a dataset's folder",
            Self::Model => "is the directory of a model, not a dataset",
            Self::Folder => "is not a dataset: it has no dataset.json",
        })
    }
}

/// Returns true if a file's first bytes are UTF-8 without NUL bytes.
fn is_text(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    let valid = match str::from_utf8(&head) {
        Ok(_) => true,
        // The limit may have split a character.
        Err(error) => error.error_len().is_none(),
    };
    read.is_ok() && !head.is_empty() && valid && !head.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataError, Dataset};

    #[test]
    fn paths_other_than_datasets_are_identified() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        // The limit splits a character.
        write("input.txt", "xé".repeat(HEAD_BYTES as usize).as_bytes());
        write("latin.txt", b"caf\xe9 au lait");
        write("empty", b"");
        write("data/dataset.json", b"{}");
        write("train.bin", &[0; 8]);
        write("weights.safetensors", &[0; 8]);
        write("run/config.toml", b"");
        write("other/notes.txt", b"x");
        for (name, expected) in [
            ("nowhere", NotADataset::Missing),
            ("nowhere/at/all", NotADataset::Missing),
            ("input.txt", NotADataset::TextFile),
            ("latin.txt", NotADataset::OtherFile),
            ("empty", NotADataset::OtherFile),
            ("data/dataset.json", NotADataset::Manifest),
            ("train.bin", NotADataset::TokenFile),
            ("weights.safetensors", NotADataset::OtherFile),
            ("run", NotADataset::Model),
            ("other", NotADataset::Folder),
        ] {
            let error = Dataset::open(folder.path().join(name)).err();
            match error {
                Some(DataError::NotADataset { found, .. }) => assert_eq!(found, expected, "{name}"),
                error => panic!("{name}: {error:?}"),
            }
        }
    }
}
