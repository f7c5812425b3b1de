//! Any bytes as a file of each format, compressed or not.

#![no_main]

#[allow(dead_code)]
#[path = "../../crates/data/tests/fuzzed/entry.rs"]
mod entry;

use std::sync::LazyLock;

use emberlm_data::{Format, InputOptions};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

fuzz_target!(|bytes: &[u8]| {
    for format in Format::ALL {
        let options = InputOptions {
            format: Some(format),
            ..InputOptions::default()
        };
        entry::input(bytes, &options, FOLDER.path());
    }
});
