//! Verification of files as they are read: by blocks, or as a whole if there are no block hashes.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use emberlm_data::{DataError, Dataset, Packing, Split, UnverifiedFiles};
use emberlm_tokenizer::TokenizerKind::{Byte, Gpt2};

use super::common::{adopt, copy, edit_file, ids, options, prepared, write_mask};

const MIB: u64 = 1 << 20;

/// A dataset with slightly more than three blocks in its training shard and one in its validation shard.
fn large() -> (tempfile::TempDir, Dataset) {
    let text: String = (0..170_000).map(|i| format!("{i} apples\n")).collect();
    let (source, dataset) = prepared(&[&text[..1_900_000]], Byte, 0.1);
    let bytes = fs::metadata(dataset.folder().join("train_00000.bin"))
        .unwrap()
        .len();
    assert!(bytes > 3 * MIB, "{bytes}");
    (source, dataset)
}

fn flip(folder: &Path, file: &str, at: u64) {
    edit_file(&folder.join(file), |bytes| bytes[at as usize] ^= 1);
}

/// The damage found when reading `len` tokens from `start`: file, first byte and end.
fn damage(dataset: &Dataset, split: Split, start: u64, len: u64) -> Option<(String, u64, u64)> {
    match dataset.split(split).unwrap().read(start, len) {
        Ok(_) => None,
        Err(DataError::DamagedBlock { path, start, end }) => {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            Some((name, start, end))
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn damaged_block_is_rejected_and_other_blocks_are_read() {
    let (_source, dataset) = large();
    let before = ids(&dataset, Split::Train);
    flip(dataset.folder(), "train_00000.bin", MIB + 77);
    let found = ("train_00000.bin".to_owned(), MIB, 2 * MIB);
    // A token in the second block, after the header of 1,024 bytes.
    let first = (MIB - 1024) / 2;
    assert_eq!(
        damage(&dataset, Split::Train, first, 1),
        Some(found.clone())
    );
    assert_eq!(damage(&dataset, Split::Train, first - 1, 1), None);
    assert_eq!(
        damage(&dataset, Split::Train, first - 1, 2),
        Some(found.clone())
    );
    assert_eq!(damage(&dataset, Split::Train, first + MIB / 2, 1000), None);
    let tokens = dataset.split(Split::Train).unwrap();
    assert_eq!(
        tokens.read(first + MIB / 2, 50).unwrap(),
        before[(first + MIB / 2) as usize..][..50]
    );
    // The error repeats on every read, and also fails the document index.
    assert!(tokens.read(first, 1).is_err() && tokens.read(first, 1).is_err());
    let error = dataset
        .windows(Split::Train, 64, Packing::Isolated)
        .err()
        .unwrap();
    let expected = format!(
        "train_00000.bin is damaged: bytes {MIB} to {} are not",
        2 * MIB - 1
    );
    assert!(error.to_string().contains(&expected), "{error}");
    let problems = dataset.verify().unwrap_err().to_string();
    assert!(
        problems.contains(&format!(
            "the first block that differs begins at byte {MIB}"
        )),
        "{problems}"
    );
}

#[test]
fn small_file_needs_no_block_hashes() {
    let (_source, dataset) = prepared(&["some words to read"], Gpt2, 0.3);
    assert!(!dataset.folder().join("dataset.blocks.json").exists());
    let len = fs::metadata(dataset.folder().join("val_00000.bin"))
        .unwrap()
        .len();
    flip(dataset.folder(), "val_00000.bin", len - 1);
    let found = Some(("val_00000.bin".to_owned(), 0, len));
    assert_eq!(damage(&dataset, Split::Val, 0, 1), found);
    assert_eq!(damage(&dataset, Split::Train, 0, 1), None);
}

#[test]
fn damaged_mask_is_rejected() {
    let (_source, dataset) = prepared(&["abc"], Byte, 0.0);
    write_mask(dataset.folder(), &[0, 1, 1, 1], 3);
    let learnt = || {
        Dataset::open(dataset.folder())
            .unwrap()
            .split(Split::Train)
            .unwrap()
            .learnt(0, 4)
    };
    assert_eq!(learnt().unwrap(), Some(vec![false, true, true, true]));
    flip(dataset.folder(), "train_00000.mask", 2);
    let error = learnt().unwrap_err().to_string();
    assert!(
        error.ends_with("train_00000.mask is damaged: bytes 0 to 3 are not what was written"),
        "{error}"
    );
}

#[test]
fn adopted_files_are_verified_in_both_locations() {
    let llmc = copy("llmc");
    let links = tempfile::tempdir().unwrap();
    let mut linked = options(Byte);
    linked.out = Some(links.path().join("links"));
    adopt(llmc.path(), &linked).unwrap();
    let dataset = Dataset::open(links.path().join("links")).unwrap();
    flip(llmc.path(), "tiny_val_000000.bin", 1030);
    let found = damage(&dataset, Split::Val, 0, 3).unwrap();
    assert_eq!((found.0.as_str(), found.1), ("tiny_val_000000.bin", 0));

    // Without a header, and with more than one block.
    let folder = tempfile::tempdir().unwrap();
    let tokens = |count: usize| {
        (0..count)
            .flat_map(|i| (i as u16 % 251).to_le_bytes())
            .collect::<Vec<u8>>()
    };
    fs::write(folder.path().join("train.bin"), tokens(700_000)).unwrap();
    fs::write(folder.path().join("val.bin"), tokens(1000)).unwrap();
    adopt(folder.path(), &options(Byte)).unwrap();
    let dataset = Dataset::open(folder.path()).unwrap();
    dataset.verify().unwrap();
    assert!(UnverifiedFiles::of([&dataset.split(Split::Train).unwrap()]).is_empty());
    flip(folder.path(), "train.bin", 1_399_999);
    assert_eq!(damage(&dataset, Split::Train, 0, 1000), None);
    let found = ("train.bin".to_owned(), MIB, 1_400_000);
    assert_eq!(damage(&dataset, Split::Train, 699_000, 1), Some(found));
}

#[test]
fn dataset_without_block_hashes_is_verified_by_file() {
    let (_source, dataset) = large();
    let splits = || [Split::Train, Split::Val].map(|split| dataset.split(split).unwrap());
    assert!(UnverifiedFiles::of(&splits()).is_empty());
    // As written by versions without block hashes.
    fs::remove_file(dataset.folder().join("dataset.blocks.json")).unwrap();
    let files = UnverifiedFiles::of(&splits());
    let bytes = fs::metadata(dataset.folder().join("train_00000.bin"))
        .unwrap()
        .len();
    assert_eq!((files.len(), files.bytes()), (1, bytes));
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    files.verify(&stop, &done).unwrap();
    assert_eq!(done.load(Ordering::Relaxed), bytes);
    flip(dataset.folder(), "train_00000.bin", 2 * MIB);
    assert_eq!(damage(&dataset, Split::Train, MIB, 10), None);
    let error = files.verify(&stop, &done).unwrap_err().to_string();
    let expected = format!(
        "train_00000.bin is damaged: bytes 0 to {} are not",
        bytes - 1
    );
    assert!(error.contains(&expected), "{error}");
    // A verification that is stopped early reports no damage.
    stop.store(true, Ordering::Relaxed);
    files.verify(&stop, &done).unwrap();
}

#[test]
fn mismatched_block_hashes_are_rejected() {
    let (_source, dataset) = large();
    let path = dataset.folder().join("dataset.blocks.json");
    let good = fs::read_to_string(&path).unwrap();
    let error_message = |text: String| {
        fs::write(&path, text).unwrap();
        dataset.split(Split::Train).err().unwrap().to_string()
    };
    let at = good.find("\"train_00000.bin\": \"").unwrap() + 20;
    let digit = if &good[at..=at] == "0" { "1" } else { "0" };
    let other = format!("{}{digit}{}", &good[..at], &good[at + 1..]);
    assert!(error_message(other).contains("do not match its BLAKE3 in dataset.json"));
    let problems = dataset.verify().unwrap_err().to_string();
    assert!(
        problems.contains("its block hashes in dataset.blocks.json belong to another file"),
        "{problems}"
    );
    assert!(error_message(good.replace("\"format\": 1", "\"format\": 2")).contains("`format`"));
    assert!(error_message(good.replace("1048576", "4096")).contains("`block_bytes`"));
    assert!(error_message(good[..good.len() / 2].to_owned()).contains("dataset.blocks.json"));
    assert!(error_message("\u{0}".to_owned()).contains("dataset.blocks.json"));
    fs::write(&path, good).unwrap();
    dataset.split(Split::Train).unwrap();
}
