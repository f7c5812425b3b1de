//! A tokenizer's file: `tokenizer.json`, a SentencePiece model or a rank file.

#![no_main]

#[allow(dead_code)]
#[path = "../../crates/tokenizer/tests/fuzzed/entry.rs"]
mod entry;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

fuzz_target!(|bytes: &[u8]| {
    entry::tokenizer(bytes, FOLDER.path());
});
