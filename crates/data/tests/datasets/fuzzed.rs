//! The fuzzers' entry functions over mutations of good files, within bounds of time; `fuzz/` goes on where this ends.

use std::fs;
use std::time::{Duration, Instant};

use emberlm_testing::mutate::Mutator;

use super::place::{adopt, copy, fixture, options};

#[path = "../fuzzed/datasets.rs"]
mod datasets;

/// Far above what any takes; far below what a loop over a number of the file would.
const LONGEST: Duration = Duration::from_secs(5);

/// Runs mutations of the files; some must be read, or nothing would be tried beyond the first check.
fn run(files: &[Vec<u8>], mutations: u64, entry: impl Fn(&[u8]) -> bool) {
    let files: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
    assert!(files.iter().all(|bytes| entry(bytes)));
    let mut read = 0;
    for number in 0..mutations {
        let bytes = Mutator::new(number).mutate(&files);
        let start = Instant::now();
        read += u64::from(entry(&bytes));
        assert!(start.elapsed() < LONGEST, "mutation {number}");
    }
    assert!(
        (1..mutations * 9 / 10).contains(&read),
        "{read} of {mutations}"
    );
}

#[test]
fn shards() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["llmc/tiny_val_000000.bin", "llmc_wide/tiny_val_000000.bin"];
    let files = names.map(|name| fs::read(fixture(name)).unwrap());
    run(&files, 300, |bytes| datasets::shard(bytes, folder.path()));
}

#[test]
fn manifests() {
    let folder = copy("llmc");
    adopt(
        folder.path(),
        &options(emberlm_tokenizer::TokenizerKind::Byte),
    )
    .unwrap();
    let plain = fs::read(folder.path().join("dataset.json")).unwrap();
    let mut masked: serde_json::Value = serde_json::from_slice(&plain).unwrap();
    masked["splits"]["val"]["shards"][0]["mask"] =
        serde_json::json!({"file": "val.mask", "learnt": 3, "blake3": "00"});
    masked["splits"]["val"]["floor"] = serde_json::json!({"nats_per_token": 0.5, "source": "x"});
    let files = [plain, serde_json::to_vec_pretty(&masked).unwrap()];
    run(&files, 500, |bytes| {
        datasets::manifest(bytes, folder.path())
    });
}
