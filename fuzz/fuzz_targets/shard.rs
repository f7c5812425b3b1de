//! Fuzzes shards and masks.

#![no_main]

use std::sync::LazyLock;

use emberlm_fuzz::datasets;
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

fuzz_target!(|bytes: &[u8]| {
    datasets::shard(bytes, FOLDER.path());
});
