//! Fuzzes a chat template and, after a NUL, the record that it renders.

#![no_main]

use emberlm_fuzz::tokenizer;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    tokenizer::template(bytes);
});
