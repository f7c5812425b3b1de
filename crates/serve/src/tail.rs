//! Reads the lines that were appended to a file since the last read.

use std::fs::Metadata;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::UNIX_EPOCH;

use emberlm_system::read;
use serde_json::Value;

/// The most bytes to read at once.
pub const LIMIT: u64 = 1 << 20;

/// A file and the position up to which it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilePosition {
    /// The identity of the file, since a new file may take the same name. Empty before the first read.
    pub file: String,
    /// The offset in bytes.
    pub offset: u64,
}

/// The lines after a position.
#[derive(Clone, Debug)]
pub struct Tail {
    /// The position to continue from.
    pub place: FilePosition,
    /// The lines that are valid JSON. If [`FilePosition::file`] has changed, they start at the beginning of
    /// the file.
    pub lines: Vec<Value>,
    /// True if there may be more to read.
    pub more: bool,
}

/// Reads the complete lines after `from` in a regular file, at most [`LIMIT`] bytes. Starts at the beginning
/// if the file is a different one or was truncated. Skips an incomplete last line until it is complete, and
/// lines that are not JSON.
///
/// # Errors
/// The file cannot be read.
pub fn read_after(path: &Path, from: &FilePosition) -> io::Result<Tail> {
    let mut file = read::open(path)?;
    let metadata = file.metadata()?;
    let identity = identity(&metadata);
    let same_file = from.file == identity && from.offset <= metadata.len();
    let start = if same_file { from.offset } else { 0 };
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(LIMIT).read_to_end(&mut bytes)?;
    let full = bytes.len() as u64 == LIMIT;
    let whole = match bytes.iter().rposition(|&byte| byte == b'\n') {
        Some(end) => end + 1,
        // A line longer than the limit is not one of the events, so skip it.
        None if full => bytes.len(),
        None => 0,
    };
    let lines = bytes[..whole]
        .split(|&byte| byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    Ok(Tail {
        place: FilePosition {
            file: identity,
            offset: start + whole as u64,
        },
        lines,
        more: full,
    })
}

/// The identity of a file. It differs from that of an earlier file with the same name: a resumed run rewrites
/// its events.
fn identity(metadata: &Metadata) -> String {
    let made = metadata.created().ok();
    let made = made.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let made = made.map_or(0, |since| since.as_nanos());
    format!("{:x}-{made:x}", number(metadata))
}

#[cfg(unix)]
fn number(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn number(_metadata: &Metadata) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write;

    use super::*;

    fn texts(tail: &Tail) -> Vec<String> {
        tail.lines.iter().map(Value::to_string).collect()
    }

    #[test]
    fn lines_are_returned_once_and_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"{\"a\":1}\n{\"b\":2}\n{\"c\"").unwrap();
        let first = read_after(&path, &FilePosition::default()).unwrap();
        assert_eq!(texts(&first), ["{\"a\":1}", "{\"b\":2}"]);
        let again = read_after(&path, &first.place).unwrap();
        assert_eq!((texts(&again), &again.place), (vec![], &first.place));
        file.write_all(b":3}\n").unwrap();
        let rest = read_after(&path, &first.place).unwrap();
        assert_eq!(texts(&rest), ["{\"c\":3}"]);
    }

    #[test]
    fn a_replaced_file_is_read_from_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        fs::write(&path, "{\"a\":1}\n{\"a\":2}\n").unwrap();
        let first = read_after(&path, &FilePosition::default()).unwrap();
        let other = folder.path().join("other");
        fs::write(&other, "{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n").unwrap();
        fs::rename(&other, &path).unwrap();
        let second = read_after(&path, &first.place).unwrap();
        assert_eq!(second.lines.len(), 3);
        assert_ne!(second.place.file, first.place.file);
        // A stopped run may have written more events than it keeps when resumed.
        fs::write(&path, "{\"a\":1}\n").unwrap();
        assert_eq!(read_after(&path, &second.place).unwrap().lines.len(), 1);
    }

    #[test]
    fn lines_that_are_not_json_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        fs::write(&path, b"\0\0\0\n{\"a\":1}\n{\n\n\xff\n[2]\n").unwrap();
        let tail = read_after(&path, &FilePosition::default()).unwrap();
        assert_eq!(texts(&tail), ["{\"a\":1}", "[2]"]);
    }

    #[test]
    fn a_long_file_is_read_in_chunks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let line = format!("\"{}\"\n", "x".repeat(997));
        let count = 2 * LIMIT as usize / line.len() + 3;
        fs::write(&path, line.repeat(count)).unwrap();
        let (mut place, mut found, mut pieces) = (FilePosition::default(), 0, 0);
        loop {
            let tail = read_after(&path, &place).unwrap();
            found += tail.lines.len();
            pieces += 1;
            place = tail.place;
            if !tail.more {
                break;
            }
        }
        assert_eq!((found, pieces), (count, 3));
    }

    #[cfg(unix)]
    #[test]
    fn a_device_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        let error = read_after(&path, &FilePosition::default()).unwrap_err();
        assert_eq!(error.to_string(), "it is a device, not a regular file");
    }
}
