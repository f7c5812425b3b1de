//! Any bytes as a shard of tokens, and as a mask.

#![no_main]

#[allow(dead_code)]
#[path = "../../crates/data/tests/fuzzed/datasets.rs"]
mod datasets;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

fuzz_target!(|bytes: &[u8]| {
    datasets::shard(bytes, FOLDER.path());
});
