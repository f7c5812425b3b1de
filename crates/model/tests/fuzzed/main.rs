//! The fuzzers' entry functions over the committed corpus and 2,000 mutations of it: no panic, and bounded time and
//! memory. `fuzz/` goes on where this ends.

#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, missing_docs)]

mod entry;
mod mutate;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mutate::Mutator;

/// Far above what any takes; far below what a loop over a number of the file would.
const LONGEST: Duration = Duration::from_secs(10);
/// Of the whole process, in kB.
const MOST_MEMORY: u64 = 1 << 20;

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn corpus(kind: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(fixtures().join("corpus").join(kind)).unwrap();
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

/// Runs every file of a corpus, which is a model if its name says so, and mutations of them.
fn run(seeds: &[(String, Vec<u8>)], mutations: u64, entry: impl Fn(&[u8]) -> bool) {
    let once = |what: &str, bytes: &[u8]| {
        let start = Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(|| entry(bytes)));
        let time = start.elapsed();
        let shown = || String::from_utf8_lossy(bytes).into_owned();
        assert!(time < LONGEST, "{what} took {time:?}: {}", shown());
        ended.unwrap_or_else(|_| panic!("{what} panics: {}", shown()))
    };
    for (name, bytes) in seeds {
        assert_eq!(once(name, bytes), name.starts_with("model"), "{name}");
    }
    let bytes: Vec<&[u8]> = seeds.iter().map(|(_, bytes)| bytes.as_slice()).collect();
    let mut read = 0;
    for number in 0..mutations {
        let mutated = Mutator::new(number).mutate(&bytes);
        read += u64::from(once(&format!("mutation {number}"), &mutated));
    }
    println!("{read} of {mutations} mutations are models");
    // Some change nothing that matters; were it all or none, nothing would be tried.
    assert!((1..mutations * 9 / 10).contains(&read), "{read} are models");
    check_memory();
}

/// Where the system says what the process has held at most.
fn check_memory() {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let Some(peak) = status.lines().find_map(|line| line.strip_prefix("VmHWM:")) else {
        return;
    };
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    println!("{peak} kB at most");
    assert!(peak < MOST_MEMORY, "{peak} kB");
}

#[test]
fn configurations() {
    let mut seeds = corpus("config");
    // Those that transformers wrote are models too.
    for entry in fs::read_dir(fixtures().join("families")).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("model {}", path.display());
        seeds.push((name, fs::read(path.join("config.json")).unwrap()));
    }
    seeds.sort();
    run(&seeds, 1200, entry::config);
}

#[test]
fn weights() {
    let folder = tempfile::tempdir().unwrap();
    run(&corpus("weights"), 500, |bytes| {
        entry::weights(bytes, folder.path())
    });
}

#[test]
fn indices() {
    let folder = tempfile::tempdir().unwrap();
    let shard = fs::read(fixtures().join("corpus/weights/model.safetensors")).unwrap();
    assert_eq!(Path::new(entry::SHARD).extension().unwrap(), "safetensors");
    run(&corpus("index"), 300, |bytes| {
        entry::index(bytes, &shard, folder.path())
    });
}
