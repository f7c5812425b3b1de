//! Any bytes as `config.json` and as a `model.json`'s model.

#![recursion_limit = "256"]
#![no_main]

#[allow(dead_code)]
#[path = "../../crates/model/tests/fuzzed/entry.rs"]
mod entry;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    entry::config(bytes);
});
