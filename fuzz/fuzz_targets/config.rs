//! Any bytes as `config.json` and as a `model.json`'s model.

#![recursion_limit = "256"]
#![no_main]

use emberlm_fuzz::model;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    model::config(bytes);
});
