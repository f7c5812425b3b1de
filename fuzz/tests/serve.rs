//! Mutations of valid request bodies and followed events, without server errors and within limits on time and
//! memory.

use emberlm_fuzz::{bodies, bounded, followed_events};

/// Sends the bodies of a folder and mutations of them. Those named `good` must succeed.
fn mutations(path: &str, count: u64, folder: &str) {
    assert!(bodies::PATHS.contains(&path));
    bounded::run(
        &bounded::seeds(&format!("seeds/bodies/{folder}")),
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
        bounded::seeds("seeds/events"),
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
