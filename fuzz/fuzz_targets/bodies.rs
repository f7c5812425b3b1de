//! Any bytes as the body of each request that the server takes.

#![recursion_limit = "256"]
#![no_main]

#[path = "../../crates/serve/tests/fuzzed/entry.rs"]
mod entry;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for path in entry::PATHS {
        entry::body(path, bytes);
    }
});
