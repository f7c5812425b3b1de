//! Follows arbitrary bytes as a run's events, as the live page does.

use std::fs;
use std::path::Path;

use emberlm_serve::tail::{self, FilePosition};

/// Follows a file of `bytes` to its end. Returns true if it contains a line of JSON.
pub fn follow(bytes: &[u8], folder: &Path) -> bool {
    let path = folder.join("events.jsonl");
    if let Err(error) = fs::write(&path, bytes) {
        panic!("{}: {error}", path.display());
    }
    let mut place = FilePosition::default();
    let mut lines = 0;
    loop {
        let Ok(tail) = tail::read_after(&path, &place) else {
            panic!("{} cannot be read", path.display());
        };
        lines += tail.lines.len();
        assert!(tail.place.offset <= bytes.len() as u64);
        if !tail.more {
            break;
        }
        assert!(tail.place.offset > place.offset || tail.place.file != place.file);
        place = tail.place;
    }
    assert!(lines <= bytes.iter().filter(|&&byte| byte == b'\n').count());
    lines > 0
}
