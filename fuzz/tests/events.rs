//! Mutations of valid run events, within limits on time and memory.

use std::fs;
use std::path::Path;

use emberlm_fuzz::{bounded, events};

#[test]
fn resumed_events() {
    let folder = tempfile::tempdir().unwrap();
    let seed = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds/events/resumed.jsonl");
    let seeds = [
        ("resumed".to_owned(), fs::read(seed).unwrap()),
        ("damaged".to_owned(), b"{}\n".to_vec()),
    ];
    bounded::run(
        &seeds,
        1000,
        |name| name == "resumed",
        |bytes| events::events(bytes, folder.path()),
    );
}
