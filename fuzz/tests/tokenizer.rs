//! Tokenizer files and chat templates: mutations of good ones, within bounds of time and memory.

#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::path::Path;

use emberlm_fuzz::{bounded, tokenizer};

/// The files of some of the fixtures' folders, by path.
fn files(folders: &[&str]) -> Vec<(String, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/tokenizer");
    let mut files = Vec::new();
    for folder in folders {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                files.push((path.display().to_string(), fs::read(&path).unwrap()));
            }
        }
    }
    files.sort();
    assert!(!files.is_empty());
    files
}

#[test]
fn templates() {
    let seeds = files(&["tests/fixtures/chat/templates", "src/chat/templates"]);
    bounded::run(&seeds, 1000, |_| true, tokenizer::template);
}

#[test]
fn tokenizers() {
    let folder = tempfile::tempdir().unwrap();
    let folders = ["chat", "files", "sentence_piece", "trained"];
    let folders = folders.map(|folder| format!("tests/fixtures/{folder}"));
    let seeds = files(&folders.each_ref().map(String::as_str));
    bounded::run(
        &seeds,
        1000,
        |_| true,
        |bytes| tokenizer::tokenizer(bytes, folder.path()),
    );
}
