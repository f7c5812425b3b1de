//! Expansion of paths, folders and patterns into inputs.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use glob::{MatchOptions, Pattern};

use super::{Format, Input, InputOptions};
use crate::DataError;

/// The path that stands for standard input.
pub const STANDARD_INPUT: &str = "-";

/// Expands `paths` into inputs, in order:
///
/// - a file is one input;
/// - a folder stands for all files in it and its subfolders, sorted by path;
/// - a pattern such as `data/**/*.jsonl.gz` stands for the files that match it, sorted by path;
/// - `-` stands for standard input. The caller must copy it to a file and replace [`Input::path`], see
///   [`Input::detect`].
///
/// Folders are searched without hidden files and links, patterns without hidden files and links to folders. A path
/// given by itself is always used, even if it is hidden or a link. A path is a pattern only if no such file exists.
/// Patterns match files, not folders.
///
/// # Errors
/// Fails if `paths` is empty, if a path does not exist or cannot be read, if a folder contains no files, if nothing
/// matches a pattern, or if a file is empty.
pub fn expand(paths: &[PathBuf], options: &InputOptions) -> Result<Vec<Input>, DataError> {
    if paths.is_empty() {
        return Err(DataError::NoInputs);
    }
    let mut inputs = Vec::new();
    for path in paths {
        if path == Path::new(STANDARD_INPUT) {
            inputs.push(standard_input(options));
        } else if path.is_dir() {
            let files = folder_files(path)?;
            add_files(files, options, &mut inputs)?;
        } else if path.symlink_metadata().is_err()
            && let Some(pattern) = path.to_str().and_then(pattern)
        {
            let files = matching_files(path, pattern)?;
            add_files(files, options, &mut inputs)?;
        } else {
            inputs.push(Input::detect(path, path, options)?);
        }
    }
    if inputs
        .iter()
        .filter(|input| input.is_standard_input())
        .count()
        > 1
    {
        return Err(DataError::Value {
            field: "input",
            value: STANDARD_INPUT.to_owned(),
            rule: "standard input can be read once",
        });
    }
    Ok(inputs)
}

impl Input {
    /// Returns true if this input is standard input.
    pub fn is_standard_input(&self) -> bool {
        self.path == Path::new(STANDARD_INPUT)
    }
}

fn standard_input(options: &InputOptions) -> Input {
    Input {
        path: STANDARD_INPUT.into(),
        name: "standard input".into(),
        bytes: 0,
        format: options.format.unwrap_or(Format::Text),
    }
}

fn add_files(
    mut files: Vec<PathBuf>,
    options: &InputOptions,
    inputs: &mut Vec<Input>,
) -> Result<(), DataError> {
    files.sort();
    for file in files {
        inputs.push(Input::detect(&file, &file, options)?);
    }
    Ok(())
}

/// Returns `path` if it contains pattern characters.
fn pattern(path: &str) -> Option<&str> {
    Some(path).filter(|path| path.contains(['*', '?', '[']))
}

/// The files that match a pattern. As in a shell, these include links to files.
fn matching_files(path: &Path, pattern: &str) -> Result<Vec<PathBuf>, DataError> {
    // Normalize the pattern as the walk normalizes paths: `a//*.txt` becomes `a/*.txt`.
    let joined: PathBuf = path.components().collect();
    let matcher = Pattern::new(&joined.to_string_lossy()).map_err(|error| DataError::Value {
        field: "input",
        value: pattern.to_owned(),
        rule: error.msg,
    })?;
    let rules = MatchOptions {
        require_literal_separator: true,
        ..MatchOptions::new()
    };
    let is_plain = |part: &Component| part.as_os_str().to_str().and_then(self::pattern).is_none();
    let folder: PathBuf = path.components().take_while(is_plain).collect();
    let depth = match pattern.contains("**") {
        true => usize::MAX,
        false => path.components().skip_while(is_plain).count(),
    };
    let here = folder.as_os_str().is_empty();
    let folder = if here { Path::new(".") } else { &folder };
    let mut files = match folder.is_dir() {
        true => walk(folder, depth, true)?,
        false => Vec::new(),
    };
    if here {
        let strip = |file: PathBuf| file.strip_prefix(".").map(Path::to_owned).unwrap_or(file);
        files = files.into_iter().map(strip).collect();
    }
    files.retain(|file| matcher.matches_with(&file.to_string_lossy(), rules));
    match files.is_empty() {
        true => Err(DataError::NoMatch {
            pattern: pattern.to_owned(),
        }),
        false => Ok(files),
    }
}

fn folder_files(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let files = walk(folder, usize::MAX, false)?;
    match files.is_empty() {
        true => Err(DataError::EmptyFolder {
            path: folder.to_owned(),
        }),
        false => Ok(files),
    }
}

/// The files in `folder` and its subfolders down to `depth`, except hidden ones. Links to files are included if
/// `links` is true. Links to folders are never followed, so there are no cycles.
fn walk(folder: &Path, depth: usize, links: bool) -> Result<Vec<PathBuf>, DataError> {
    let mut files = Vec::new();
    // An explicit stack: recursion could overflow on deeply nested folders.
    let mut folders = vec![(folder.to_owned(), depth)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(DataError::io("read", &folder))? {
            let entry = entry.map_err(DataError::io("read", &folder))?;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let path = entry.path();
            // The type of the entry itself: a link is neither a file nor a folder here.
            let kind = entry.file_type().map_err(DataError::io("read", &path))?;
            if kind.is_dir() && depth > 1 {
                folders.push((path, depth - 1));
            } else if kind.is_file() || (links && kind.is_symlink() && path.is_file()) {
                files.push(path);
            }
        }
    }
    Ok(files)
}

/// For `map_err`: the error of an input at `path` that cannot be read.
pub(super) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> DataError {
    let path = path.to_owned();
    move |source| match source.kind() {
        io::ErrorKind::NotFound => DataError::MissingInput { path },
        _ => DataError::io("read", &path)(source),
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

    fn expand_all(paths: &[PathBuf]) -> Result<Vec<Input>, DataError> {
        expand(paths, &InputOptions::default())
    }

    fn names(folder: &Path, paths: &[PathBuf]) -> Vec<String> {
        let inputs = expand_all(paths).unwrap();
        let name = |i: &Input| i.path.strip_prefix(folder).unwrap().display().to_string();
        inputs.iter().map(name).collect()
    }

    #[test]
    fn folder_is_read_in_path_order_without_hidden_files() {
        let folder = folder_with(&["b.txt", "a/z.txt", "a/b/c", "a.txt", ".git/x", "a/.y", "c"]);
        let found = names(folder.path(), &[folder.path().to_owned()]);
        assert_eq!(found, ["a/b/c", "a/z.txt", "a.txt", "b.txt", "c"]);
    }

    #[test]
    fn inputs_keep_their_order_and_named_hidden_files_are_used() {
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
    fn unreadable_input_error_names_the_path() {
        let folder = folder_with(&["a", "sub/.hidden"]);
        fs::write(folder.path().join("empty"), "").unwrap();
        let message = |name: &str| {
            let error = expand_all(&[folder.path().join(name)]).unwrap_err();
            error.to_string()
        };
        assert_eq!(
            expand_all(&[]).unwrap_err().to_string(),
            "no input: pass at least one file or folder"
        );
        assert!(message("nowhere").starts_with("no such file or folder: "));
        assert!(message("nowhere").ends_with("nowhere"));
        assert!(message("empty").ends_with("empty is empty"));
        assert!(message("sub").contains("sub holds no files"));
        assert!(message("").ends_with("empty is empty"));
    }
}
