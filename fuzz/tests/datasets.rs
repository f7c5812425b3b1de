//! Mutations of valid dataset files, within limits on time and memory.

use std::fs;
use std::path::{Path, PathBuf};

use emberlm_data::{AdoptOptions, Adoption};
use emberlm_fuzz::{bounded, datasets};
use emberlm_tokenizer::TokenizerKind;

fn fixture(name: &str) -> PathBuf {
    let fixtures = "../crates/data/tests/fixtures/datasets";
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(fixtures)
        .join(name)
}

/// Runs `entry` on valid files and mutations of them.
fn run(files: &[Vec<u8>], mutations: u64, entry: impl Fn(&[u8]) -> bool) {
    let seed = |(number, bytes): (usize, &Vec<u8>)| (format!("file {number}"), bytes.clone());
    let seeds: Vec<_> = files.iter().enumerate().map(seed).collect();
    bounded::run(&seeds, mutations, |_| true, entry);
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
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture("llmc")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let options = AdoptOptions {
        tokenizer: TokenizerKind::Byte.into(),
        alphabet: None,
        train: None,
        val: None,
        out: None,
        force: false,
        command: "emberlm data adopt".to_owned(),
    };
    let adoption = Adoption::find(folder.path(), &options).unwrap();
    adoption.run(&|_| {}).unwrap();
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
