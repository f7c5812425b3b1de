//! Paths of inputs: unusual names, read-only folders and expansion of patterns.

use std::fs;
use std::path::{Path, PathBuf};

use emberlm_data::{DataError, Format, Input, InputOptions, STANDARD_INPUT, expand};

use super::{Workspace, format, read, stop};

/// The inputs that a path or pattern in `folder` expands to, relative to the folder.
fn expanded(workspace: &Workspace, paths: &[&str]) -> Result<Vec<String>, DataError> {
    let root = workspace.path("");
    let paths: Vec<PathBuf> = paths.iter().map(|path| workspace.path(path)).collect();
    let inputs = expand(&paths, &stop())?;
    let name = |input: &Input| {
        let path = input.path().strip_prefix(&root).unwrap();
        path.to_str().unwrap().replace('\\', "/")
    };
    Ok(inputs.iter().map(name).collect())
}

#[test]
fn patterns_match_files_in_order_without_hidden_ones() {
    let workspace = Workspace::empty();
    for name in [
        "b.jsonl.gz",
        "a.jsonl.gz",
        "c.txt",
        ".d.jsonl.gz",
        "x/y/e.jsonl.gz",
        "x/.z/f.jsonl.gz",
        "x/g.txt",
    ] {
        workspace.file(name, "x");
    }
    let found = |pattern| expanded(&workspace, &[pattern]).unwrap();
    assert_eq!(found("*.jsonl.gz"), ["a.jsonl.gz", "b.jsonl.gz"]);
    assert_eq!(
        found("**/*.jsonl.gz"),
        ["a.jsonl.gz", "b.jsonl.gz", "x/y/e.jsonl.gz"]
    );
    assert_eq!(found("[bc].*"), ["b.jsonl.gz", "c.txt"]);
    assert_eq!(found("?/*"), ["x/g.txt"]);
    let two = expanded(&workspace, &["x", "*.txt"]).unwrap();
    assert_eq!(two, ["x/g.txt", "x/y/e.jsonl.gz", "c.txt"]);
}

#[test]
#[cfg(unix)]
fn pattern_includes_links_to_files_and_avoids_cycles() {
    use std::os::unix::fs::symlink;

    let workspace = Workspace::empty();
    workspace.file("blobs/0a1b", "x");
    workspace.file("data/b.txt", "x");
    // The layout of downloads in the Hugging Face cache.
    symlink("../blobs/0a1b", workspace.path("data/a.txt")).unwrap();
    for name in ["data/loop", "data/again"] {
        symlink(workspace.path("data"), workspace.path(name)).unwrap();
    }
    symlink("nowhere", workspace.path("data/dangling.txt")).unwrap();
    for pattern in ["**/*.txt", "data/*.txt", "d*/?.txt", "./data//*.txt"] {
        let found = expanded(&workspace, &[pattern]).unwrap();
        assert_eq!(found, ["data/a.txt", "data/b.txt"], "{pattern}");
    }
}

#[test]
fn existing_file_named_like_a_pattern_is_one_input() {
    let workspace = Workspace::empty();
    for name in ["a[1].txt", "a1.txt"] {
        workspace.file(name, "x");
    }
    assert_eq!(expanded(&workspace, &["a[1].txt"]).unwrap(), ["a[1].txt"]);
    assert_eq!(expanded(&workspace, &["a?.txt"]).unwrap(), ["a1.txt"]);
}

#[test]
fn pattern_without_matches_is_an_error() {
    let workspace = Workspace::empty();
    workspace.file("folder/a.txt", "x");
    workspace.file(".hidden", "x");
    for pattern in ["*.csv", ".h*", "f*", "nowhere/**"] {
        let message = expanded(&workspace, &[pattern]).unwrap_err().to_string();
        assert_eq!(
            message,
            format!("no file matches {}", workspace.path(pattern).display())
        );
    }
    let message = expanded(&workspace, &["a[.txt"]).unwrap_err().to_string();
    assert!(message.contains("a[.txt"), "{message}");
}

#[test]
fn standard_input_can_be_named_once() {
    let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    let inputs = expand(&paths(&[STANDARD_INPUT]), &format(Format::Csv)).unwrap();
    assert!(inputs[0].is_standard_input());
    assert_eq!(inputs[0].name, Path::new("standard input"));
    assert_eq!(inputs[0].format, Format::Csv);
    let message = expand(&paths(&["-", "-"]), &stop())
        .unwrap_err()
        .to_string();
    assert_eq!(message, "`input` is -: standard input can be read once");

    // Standard input is copied to a file, but keeps its name.
    let workspace = Workspace::empty();
    let kept = workspace.file("kept", "{\"text\": 1}");
    let options = format(Format::Jsonl);
    let input = Input::detect(&kept, "standard input", &options).unwrap();
    let mut reader = input.open(&options, None).unwrap();
    assert_eq!(
        reader.next_chunk().unwrap_err().to_string(),
        "standard input: line 1: `text` is a number, not a string"
    );
}

#[test]
#[cfg(unix)]
fn unusual_names_and_read_only_folders_are_supported() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;

    let workspace = Workspace::empty();
    let folder = workspace.path("räume mit 空白 🔥");
    let content = fs::read(super::fixture("snappy.parquet")).unwrap();
    workspace.file("räume mit 空白 🔥/a b.parquet", content);
    workspace.file("räume mit 空白 🔥/ü.jsonl", "{\"text\": \"x\"}");
    // A name that is not UTF-8: é in Latin-1.
    let odd = folder.join(OsStr::from_bytes(b"\xE9.txt"));
    let odd_is_possible = fs::write(&odd, "y").is_ok();
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        fs::set_permissions(path, fs::Permissions::from_mode(0o400)).unwrap();
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o500)).unwrap();
    let inputs = expand(std::slice::from_ref(&folder), &stop()).unwrap();
    assert_eq!(inputs.len(), 2 + usize::from(odd_is_possible));
    let skip = InputOptions {
        on_error: emberlm_data::OnError::Skip,
        ..stop()
    };
    for input in &inputs {
        assert!(!read(input.path(), &skip).unwrap().documents.is_empty());
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
}
