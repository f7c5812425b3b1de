//! Truncated and changed files. The unit tests in `shard/mod.rs` try every length and every byte of the header.

use std::fs;
use std::path::{Path, PathBuf};

use emberlm_data::{Mask, Shard, ShardLayout};

use super::common::fixture;

/// Writes a file `name` with these bytes.
fn file(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn error_message(path: &Path, layout: ShardLayout) -> String {
    let message = Shard::open_as(path, layout).err().unwrap().to_string();
    assert!(message.contains(path.to_str().unwrap()), "{message}");
    message
}

fn good() -> Vec<u8> {
    let shard = fs::read(fixture("llmc/tiny_val_000000.bin")).unwrap();
    assert_eq!(shard.len(), 1024 + 2 * 45);
    shard
}

#[test]
fn truncated_shard_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let good = good();
    for len in [0, 1, 11, 1023, 1024, 1025, 1026, 1112, 1113] {
        let path = file(&folder, "shard.bin", &good[..len]);
        let message = error_message(&path, ShardLayout::LlmC);
        let reported = message.contains(&format!(" {len} bytes")) || len == 0;
        assert!(reported, "{message}");
    }
}

#[test]
fn shard_with_wrong_header_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    for at in 0..12 {
        let mut bytes = good();
        bytes[at] ^= 0x80;
        error_message(&file(&folder, "shard.bin", &bytes), ShardLayout::LlmC);
    }
}

#[test]
fn odd_file_length_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    for len in 0..9 {
        let path = file(&folder, "train.bin", &[7; 9][..len]);
        if len % 2 == 1 {
            let message = error_message(&path, ShardLayout::Headerless);
            assert!(message.ends_with(&format!(
                "{len} bytes are not a whole number of 16-bit tokens"
            )));
        } else if len > 0 {
            let shard = Shard::open_as(&path, ShardLayout::Headerless).unwrap();
            assert_eq!(shard.len(), len as u64 / 2);
        }
    }
}

#[test]
fn mask_with_wrong_length_or_byte_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    for len in 0..8 {
        let path = file(&folder, "train.mask", &[1; 8][..len]);
        let message = Mask::open(&path, 5).err().map(|error| error.to_string());
        assert_eq!(message.is_none(), len == 5, "{len}");
        assert!(message.is_none_or(|text| text.contains("train.mask")));
    }
    for byte in [0, 1, 2, 3, 48, 127, 128, 254, 255] {
        let path = file(&folder, "train.mask", &[0, 1, byte]);
        let mask = Mask::open(&path, 3).unwrap();
        let mut learnt = Vec::new();
        let read = mask.read_into(0, 3, &mut learnt);
        match byte {
            0 | 1 => assert_eq!(learnt, [false, true, byte == 1]),
            _ => {
                let message = read.unwrap_err().to_string();
                assert!(message.ends_with(&format!("byte {byte} at 2: only 0 and 1 are allowed")));
                assert!(learnt.is_empty());
            }
        }
    }
}
