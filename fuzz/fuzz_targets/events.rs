//! Fuzzes a run's `events.jsonl`: read at once, truncated for resuming, and followed as by the live page.

#![recursion_limit = "256"]
#![no_main]

use std::sync::LazyLock;

use emberlm_fuzz::{events, followed_events};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

fuzz_target!(|bytes: &[u8]| {
    followed_events::follow(bytes, FOLDER.path());
    events::events(bytes, FOLDER.path());
});
