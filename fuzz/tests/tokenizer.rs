//! Mutations of valid tokenizer files and chat templates, within limits on time and memory.

use emberlm_fuzz::{bounded, tokenizer};

/// Returns the files of the given folders of the tokenizer crate.
fn files(folders: &[&str]) -> Vec<(String, Vec<u8>)> {
    let of_folder = |folder| bounded::seeds(&format!("../crates/tokenizer/{folder}"));
    folders.iter().flat_map(of_folder).collect()
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
