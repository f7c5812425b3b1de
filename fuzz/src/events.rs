//! Feeds arbitrary bytes to the reader of a run's events, and truncates them for a resumed run.

use std::fs;
use std::path::Path;

use emberlm_trainer::events::{self, EVENTS_FILE, EventLog};

/// Reads `bytes` as a run's events and resumes the run from them. Returns true if they are undamaged.
pub fn events(bytes: &[u8], folder: &Path) -> bool {
    let path = folder.join(EVENTS_FILE);
    if let Err(error) = fs::write(&path, bytes) {
        panic!("{}: {error}", path.display());
    }
    // A file without any event is an error.
    let Ok(read) = events::read(folder) else {
        return false;
    };
    let lines = bytes.iter().filter(|&&byte| byte == b'\n').count();
    assert!(read.events.len() <= lines);
    let last = read.events.iter().map(|event| event.step()).max();
    let step = last.unwrap_or(0) / 2;
    let kept = read.events.iter().filter(|event| event.step() <= step);
    let kept = kept.count();
    if let Err(error) = EventLog::resume(folder, step) {
        panic!("{error}");
    }
    let Ok(again) = events::read(folder) else {
        panic!("{} was written by this program", path.display());
    };
    assert_eq!(again.events.len(), kept);
    assert!(again.events.iter().all(|event| event.step() <= step));
    read.damage.found.is_empty()
}
