//! Fuzzes tokenizer files: `tokenizer.json`, SentencePiece models and rank files.

#![no_main]

use std::sync::LazyLock;

use emberlm_fuzz::tokenizer;
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

fuzz_target!(|bytes: &[u8]| {
    tokenizer::tokenizer(bytes, FOLDER.path());
});
