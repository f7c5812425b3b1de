//! Fuzzes input files of every format, compressed or not.

#![no_main]

use std::sync::LazyLock;

use emberlm_data::{Format, InputOptions};
use emberlm_fuzz::inputs;
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
        inputs::input(bytes, &options, FOLDER.path());
    }
});
