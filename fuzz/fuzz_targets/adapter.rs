//! Fuzzes the settings and the weights of an adapter.

#![recursion_limit = "256"]
#![no_main]

use std::sync::LazyLock;

use emberlm_fuzz::adapter;
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

fuzz_target!(|bytes: &[u8]| {
    adapter::adapter(bytes, FOLDER.path());
});
