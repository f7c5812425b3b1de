//! Request bodies and followed events: mutations of good ones, without a server error and within bounds of time and memory.

#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::path::Path;

use emberlm_fuzz::{bodies, bounded, followed_events};

/// The files of a folder, by name.
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
    assert!(bodies::PATHS.contains(&path));
    bounded::run(
        &files(&format!("seeds/bodies/{folder}")),
        count,
        |name| name.starts_with("good"),
        |bytes| bodies::body(path, bytes),
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
        files("seeds/events"),
        vec![("cut".to_owned(), b"{\"event\"".to_vec())],
    ]
    .concat();
    bounded::run(
        &seeds,
        500,
        |name| name.ends_with(".jsonl"),
        |bytes| followed_events::follow(bytes, folder.path()),
    );
}
