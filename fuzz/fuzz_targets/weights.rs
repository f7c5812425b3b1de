//! Fuzzes the weights of a small model, and the index of its weights.

#![recursion_limit = "256"]
#![no_main]

use std::sync::LazyLock;

use emberlm_fuzz::model;
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

const SHARD: &[u8] =
    include_bytes!("../../crates/model/tests/fixtures/corpus/weights/model.safetensors");

/// Separate folders, because an index takes precedence over a single file.
static FOLDERS: LazyLock<[TempDir; 2]> =
    LazyLock::new(|| [(); 2].map(|()| tempfile::tempdir().expect("a temporary folder")));

fuzz_target!(|bytes: &[u8]| {
    let [whole, index] = &*FOLDERS;
    model::weights(bytes, whole.path());
    model::index(bytes, SHARD, index.path());
});
