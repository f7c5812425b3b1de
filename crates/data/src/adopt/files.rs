//! Selection of the token files in a folder, and of the split that each belongs to.

use std::fs;
use std::path::Path;

use glob::Pattern;

use crate::{DataError, Split};

/// Token file names by split, each list sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TokenFiles {
    pub(super) train: Vec<String>,
    pub(super) val: Vec<String>,
    /// The total size of the files.
    pub(super) bytes: u64,
}

impl TokenFiles {
    /// Finds the token files directly in `folder`. A split's files are those that match its pattern. Without a
    /// pattern, they are the `.bin` files whose names contain the split's name.
    pub(super) fn find(
        folder: &Path,
        train: Option<&str>,
        val: Option<&str>,
    ) -> Result<Self, DataError> {
        let [train_pattern, val_pattern] = [("train", train), ("val", val)].map(pattern);
        let (train_pattern, val_pattern) = (train_pattern?, val_pattern?);
        let mut files = Self::default();
        for (name, bytes) in list(folder)? {
            let matches = |pattern: &Option<Pattern>| {
                pattern
                    .as_ref()
                    .is_some_and(|pattern| pattern.matches(&name))
            };
            let path = || folder.join(&name);
            let split = match (matches(&train_pattern), matches(&val_pattern)) {
                (true, true) => return Err(DataError::BothSplits { path: path() }),
                (true, false) => Split::Train,
                (false, true) => Split::Val,
                // With a pattern for each split, files that match neither are skipped.
                (false, false) if train_pattern.is_some() && val_pattern.is_some() => continue,
                (false, false) if !name.ends_with(".bin") => continue,
                (false, false) => match split_of(&name) {
                    None => return Err(DataError::UnclearSplit { path: path() }),
                    Some(Split::Train) if train_pattern.is_some() => continue,
                    Some(Split::Val) if val_pattern.is_some() => continue,
                    Some(split) => split,
                },
            };
            if bytes == 0 {
                return Err(DataError::EmptyFile { path: path() });
            }
            files.bytes += bytes;
            match split {
                Split::Train => files.train.push(name),
                Split::Val => files.val.push(name),
            }
        }
        for (split, pattern, found) in [
            (Split::Train, train, &files.train),
            (Split::Val, val, &files.val),
        ] {
            // The validation split may be empty, unless a pattern for it was given.
            if found.is_empty() && (split == Split::Train || pattern.is_some()) {
                return Err(DataError::NothingToAdopt {
                    folder: folder.to_owned(),
                    split,
                    pattern: pattern.map(str::to_owned),
                });
            }
        }
        Ok(files)
    }
}

fn pattern((field, text): (&'static str, Option<&str>)) -> Result<Option<Pattern>, DataError> {
    let parse = |text: &str| {
        Pattern::new(text).map_err(|_| DataError::Value {
            field,
            value: text.to_owned(),
            rule: "must be a file name in the folder, or a pattern of file names",
        })
    };
    text.map(parse).transpose()
}

/// The names and lengths of the regular files in `folder`, sorted. Follows symbolic links: large files are often
/// stored on another volume.
fn list(folder: &Path) -> Result<Vec<(String, u64)>, DataError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(DataError::io("read", folder))? {
        let entry = entry.map_err(DataError::io("read", folder))?;
        // The manifest cannot hold a name that is not UTF-8. None of the supported programs writes such names.
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let path = entry.path();
        let metadata = fs::metadata(&path).map_err(DataError::io("read", &path))?;
        if metadata.is_file() && !name.starts_with('.') {
            names.push((name, metadata.len()));
        }
    }
    names.sort();
    Ok(names)
}

/// The split that a file name states, if it states exactly one: some word in the name starts with the split's name.
fn split_of(name: &str) -> Option<Split> {
    let name = name.to_ascii_lowercase();
    let words = || name.split(|c: char| !c.is_ascii_alphanumeric());
    let [train, val] = Split::ALL.map(|split| words().any(|word| word.starts_with(split.name())));
    match (train, val) {
        (true, false) => Some(Split::Train),
        (false, true) => Some(Split::Val),
        (true, true) | (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::check_table;

    #[test]
    fn names_and_patterns_determine_the_split() {
        check_table("records/token_files", |row| {
            let folder = tempfile::tempdir().unwrap();
            let (mut train, mut val) = (None, None);
            for word in row.split(' ') {
                match word.split_once('=') {
                    Some(("train", pattern)) => train = Some(pattern),
                    Some((_, pattern)) => val = Some(pattern),
                    None => fs::write(folder.path().join(word), "xx").unwrap(),
                }
            }
            match TokenFiles::find(folder.path(), train, val) {
                Ok(files) => {
                    let count = files.train.len() + files.val.len();
                    assert_eq!(files.bytes, 2 * count as u64);
                    format!("{} | {}", files.train.join(" "), files.val.join(" "))
                }
                Err(error) => {
                    let folder = folder.path().display().to_string();
                    error.to_string().replace(&folder, "D")
                }
            }
        });
    }
}
