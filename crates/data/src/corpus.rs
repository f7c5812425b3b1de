//! Files and folders expanded into documents.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::DataError;

/// One text file: one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The file.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
}

/// The documents of `inputs` in their order, a folder's files (those of its folders too) sorted by path. Hidden files
/// and links within a folder are left out; what is named itself is taken, hidden or a link.
///
/// # Errors
/// Where there are no inputs, one does not exist or cannot be read, a folder holds no file, or a file is empty.
pub fn expand(inputs: &[PathBuf]) -> Result<Vec<Document>, DataError> {
    if inputs.is_empty() {
        return Err(DataError::NoInputs);
    }
    let mut documents = Vec::new();
    for input in inputs {
        let metadata = fs::metadata(input).map_err(|source| unreadable(input, source))?;
        if metadata.is_dir() {
            expand_folder(input, &mut documents)?;
        } else if metadata.is_file() {
            documents.push(document(input.clone(), &metadata)?);
        } else {
            let path = input.clone();
            return Err(DataError::NotAFile { path });
        }
    }
    Ok(documents)
}

fn expand_folder(folder: &Path, documents: &mut Vec<Document>) -> Result<(), DataError> {
    let first = documents.len();
    // A stack instead of recursion: no depth of folders can exhaust ours.
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(DataError::io("read", &folder))? {
            let entry = entry.map_err(DataError::io("read", &folder))?;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let path = entry.path();
            // Of the entry itself: a link is neither a file nor a folder here.
            let metadata = entry.metadata().map_err(DataError::io("read", &path))?;
            if metadata.is_dir() {
                folders.push(path);
            } else if metadata.is_file() {
                documents.push(document(path, &metadata)?);
            }
        }
    }
    if documents.len() == first {
        let path = folder.to_owned();
        return Err(DataError::EmptyFolder { path });
    }
    documents[first..].sort_by(|a, b| a.path.cmp(&b.path));
    Ok(())
}

fn document(path: PathBuf, metadata: &fs::Metadata) -> Result<Document, DataError> {
    match metadata.len() {
        0 => Err(DataError::EmptyFile { path }),
        bytes => Ok(Document { path, bytes }),
    }
}

fn unreadable(path: &Path, source: io::Error) -> DataError {
    match source.kind() {
        io::ErrorKind::NotFound => DataError::MissingInput {
            path: path.to_owned(),
        },
        _ => DataError::io("read", path)(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "text").unwrap();
        }
        folder
    }

    fn names(folder: &Path, inputs: &[PathBuf]) -> Vec<String> {
        let documents = expand(inputs).unwrap();
        let name = |d: &Document| d.path.strip_prefix(folder).unwrap().display().to_string();
        documents.iter().map(name).collect()
    }

    #[test]
    fn a_folder_is_read_in_path_order_without_hidden_files() {
        let folder = folder_with(&["b.txt", "a/z.txt", "a/b/c", "a.txt", ".git/x", "a/.y", "c"]);
        let found = names(folder.path(), &[folder.path().to_owned()]);
        assert_eq!(found, ["a/b/c", "a/z.txt", "a.txt", "b.txt", "c"]);
    }

    #[test]
    fn inputs_keep_their_order_and_what_is_named_is_taken() {
        let folder = folder_with(&["b", "a", ".c"]);
        let inputs = ["b", ".c", "a"].map(|name| folder.path().join(name));
        assert_eq!(names(folder.path(), &inputs), ["b", ".c", "a"]);
    }

    #[test]
    #[cfg(unix)]
    fn links_in_a_folder_are_not_followed() {
        let folder = folder_with(&["a"]);
        std::os::unix::fs::symlink(folder.path(), folder.path().join("loop")).unwrap();
        std::os::unix::fs::symlink("a", folder.path().join("b")).unwrap();
        let found = names(folder.path(), &[folder.path().to_owned()]);
        assert_eq!(found, ["a"]);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let folder = folder_with(&["a", "sub/.hidden"]);
        fs::write(folder.path().join("empty"), "").unwrap();
        let message = |name: &str| {
            let error = expand(&[folder.path().join(name)]).unwrap_err();
            error.to_string()
        };
        assert_eq!(
            expand(&[]).unwrap_err().to_string(),
            "no input: name at least one text file or folder"
        );
        assert!(message("nowhere").starts_with("no such file or folder: "));
        assert!(message("nowhere").ends_with("nowhere"));
        assert!(message("empty").ends_with("empty is empty"));
        assert!(message("sub").contains("sub holds no text files"));
        assert!(message("").ends_with("empty is empty"));
    }
}
