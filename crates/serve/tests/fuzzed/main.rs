//! The fuzzer's entry functions over mutations of good bodies and events: no panic, no server error, and bounded time and
//! memory. `fuzz/` has the fuzzers that continue from here.

#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, missing_docs)]

mod entry;
mod tail;

use std::fs;
use std::path::Path;

use emberlm_testing::bounded;

/// The files of a folder of the repository, by name.
fn files(folder: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// Sends the bodies of a folder, which are answered if their names say so, and mutations of them.
fn mutations(path: &str, count: u64, folder: &str) {
    assert!(entry::PATHS.contains(&path));
    bounded::run(
        &files(&format!("tests/fuzzed/bodies/{folder}")),
        count,
        |name| name.starts_with("good"),
        |bytes| entry::body(path, bytes),
    );
}

#[test]
fn completions() {
    mutations("/v1/completions", 1500, "completions");
}

#[test]
fn conversations() {
    mutations("/v1/chat/completions", 800, "chat");
}

#[test]
fn responses() {
    mutations("/v1/responses", 800, "responses");
}

#[test]
fn embeddings() {
    mutations("/v1/embeddings", 500, "embeddings");
}

#[test]
fn the_page() {
    mutations("/api/play", 500, "play");
}

#[test]
fn followed_events() {
    let folder = tempfile::tempdir().unwrap();
    let seeds = [
        files("../../fuzz/seeds/events"),
        vec![("cut".to_owned(), b"{\"event\"".to_vec())],
    ]
    .concat();
    bounded::run(
        &seeds,
        500,
        |name| name.ends_with(".jsonl"),
        |bytes| tail::follow(bytes, folder.path()),
    );
}
