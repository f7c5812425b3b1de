//! A run's `events.jsonl`: read whole, cut for resuming, and followed as the live page does.

#![recursion_limit = "256"]
#![no_main]

#[path = "../../crates/trainer/tests/fuzzed/entry.rs"]
mod entry;
#[path = "../../crates/serve/tests/fuzzed/tail.rs"]
mod tail;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

fuzz_target!(|bytes: &[u8]| {
    tail::follow(bytes, FOLDER.path());
    entry::events(bytes, FOLDER.path());
});
