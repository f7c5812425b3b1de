//! A chat template and, after a NUL, the record that it renders.

#![no_main]

#[allow(dead_code)]
#[path = "../../crates/tokenizer/tests/fuzzed/entry.rs"]
mod entry;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    entry::template(bytes);
});
