//! Fuzzes `config.json` and the model of a `model.json`.

#![recursion_limit = "256"]
#![no_main]

use emberlm_fuzz::model;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    model::config(bytes);
});
