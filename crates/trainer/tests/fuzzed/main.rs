//! The fuzzers' entry function over mutations of a run's events: no panic, and bounded time and memory. `fuzz/` has the
//! fuzzer that continues from here.

#![allow(clippy::unwrap_used, missing_docs)]

mod entry;

use std::fs;
use std::path::Path;

use emberlm_testing::bounded;

#[test]
fn events() {
    let folder = tempfile::tempdir().unwrap();
    let seed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/events/resumed.jsonl");
    let seeds = [
        ("resumed".to_owned(), fs::read(seed).unwrap()),
        ("damaged".to_owned(), b"{}\n".to_vec()),
    ];
    bounded::run(
        &seeds,
        1000,
        |name| name == "resumed",
        |bytes| entry::events(bytes, folder.path()),
    );
}
