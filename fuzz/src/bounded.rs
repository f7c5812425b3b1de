//! Runs an entry function on files and mutations of them, within limits on time and memory.

#![allow(clippy::print_stdout)]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::mutate::Mutator;

/// Far above the time of any legitimate run, and far below that of a loop whose count comes from the file.
const MAX_TIME: Duration = Duration::from_secs(10);
/// Memory limit of the whole process in kB.
const MAX_MEMORY: u64 = 1 << 20;

/// Returns the names and contents of the files in a folder, which is relative to this crate.
///
/// # Panics
/// The folder cannot be read or has no files.
pub fn seeds(folder: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = fs::read_dir(&folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut seeds: Vec<_> = paths
        .filter(|path| path.is_file())
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read(path).unwrap())
        })
        .collect();
    assert!(!seeds.is_empty(), "{} has no files", folder.display());
    seeds.sort();
    seeds
}

/// Runs `entry` on every seed (a named file) and on `mutations` mutations of them. `entry` must return true for
/// valid files, and `is_good` for the names of valid seeds.
///
/// # Panics
/// `entry` panics, takes more than 10 s, or disagrees with `is_good` about a seed; the process exceeds 1 GiB;
/// or nearly all or none of the mutations are valid.
pub fn run(
    seeds: &[(String, Vec<u8>)],
    mutations: u64,
    is_good: impl Fn(&str) -> bool,
    entry: impl Fn(&[u8]) -> bool,
) {
    let once = |what: &str, bytes: &[u8]| {
        let start = Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(|| entry(bytes)));
        let time = start.elapsed();
        let shown = || String::from_utf8_lossy(bytes).into_owned();
        assert!(time < MAX_TIME, "{what} took {time:?}: {}", shown());
        ended.unwrap_or_else(|_| panic!("{what} panics: {}", shown()))
    };
    for (name, bytes) in seeds {
        assert_eq!(once(name, bytes), is_good(name), "{name}");
    }
    let bytes: Vec<&[u8]> = seeds.iter().map(|(_, bytes)| bytes.as_slice()).collect();
    let mut read = 0;
    for number in 0..mutations {
        let mutated = Mutator::new(number).mutate(&bytes);
        read += u64::from(once(&format!("mutation {number}"), &mutated));
    }
    println!("{read} of {mutations} mutations are good");
    // Some mutations are harmless. If all or none were valid, the test would be useless.
    assert!((1..mutations * 9 / 10).contains(&read), "{read} are good");
    check_memory();
}

/// Checks the peak memory of the process, where the platform reports it.
fn check_memory() {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let Some(peak) = status.lines().find_map(|line| line.strip_prefix("VmHWM:")) else {
        return;
    };
    let peak: u64 = peak
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap_or(u64::MAX);
    println!("{peak} kB at most");
    assert!(peak < MAX_MEMORY, "{peak} kB");
}
