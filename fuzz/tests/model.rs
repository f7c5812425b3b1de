//! The committed corpus of model files and 2,000 mutations of it, within limits on time and memory.

use std::fs;
use std::path::{Path, PathBuf};

use emberlm_fuzz::{bounded, model};

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../crates/model/tests/fixtures")
}

fn corpus(kind: &str) -> Vec<(String, Vec<u8>)> {
    bounded::seeds(&format!("../crates/model/tests/fixtures/corpus/{kind}"))
}

/// Runs `entry` on a corpus and mutations of it. Names of valid files begin with `model`.
fn run(seeds: &[(String, Vec<u8>)], mutations: u64, entry: impl Fn(&[u8]) -> bool) {
    bounded::run(seeds, mutations, |name| name.starts_with("model"), entry);
}

#[test]
fn configurations() {
    let mut seeds = corpus("config");
    // The configurations written by `transformers` are valid too.
    for entry in fs::read_dir(fixtures().join("families")).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("model {}", path.display());
        seeds.push((name, fs::read(path.join("config.json")).unwrap()));
    }
    seeds.sort();
    run(&seeds, 1200, model::config);
    // A small encoder–decoder with the large vocabulary that the field has by default.
    let small = r#"{ "model_type": "t5", "d_model": 24, "d_kv": 8, "d_ff": 40, "num_layers": 1, "num_heads": 3 }"#;
    assert!(model::config(small.as_bytes()));
}

#[test]
fn weights() {
    let folder = tempfile::tempdir().unwrap();
    run(&corpus("weights"), 500, |bytes| {
        model::weights(bytes, folder.path())
    });
}

#[test]
fn indices() {
    let folder = tempfile::tempdir().unwrap();
    let shard = fs::read(fixtures().join("corpus/weights/model.safetensors")).unwrap();
    assert_eq!(Path::new(model::SHARD).extension().unwrap(), "safetensors");
    run(&corpus("index"), 300, |bytes| {
        model::index(bytes, &shard, folder.path())
    });
}

#[test]
fn gguf_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = fixtures().join("gguf/llama-gqa.gguf");
    let seeds = [("model".to_owned(), fs::read(file).unwrap())];
    run(&seeds, 500, |bytes| model::gguf(bytes, folder.path()));
}
