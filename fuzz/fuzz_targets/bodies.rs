//! Fuzzes the request bodies of every endpoint of the server.

#![recursion_limit = "256"]
#![no_main]

use emberlm_fuzz::bodies;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for path in bodies::PATHS {
        bodies::body(path, bytes);
    }
});
