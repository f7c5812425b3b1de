//! Fixtures and datasets shared by these tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use emberlm_data::{
    AdoptOptions, Adopted, Adoption, DataError, Dataset, PrepareOptions, Split, prepare,
};
use emberlm_tokenizer::{TokenizerChoice, TokenizerKind};
use serde::Deserialize;

/// The values for a fixture, as recorded by `make.py`.
#[derive(Deserialize)]
pub struct Expected {
    pub ids: Vec<u32>,
    pub documents: u64,
    pub bytes: u64,
}

pub fn fixture(name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/datasets");
    fixtures.join(name)
}

pub fn expected(name: &str) -> BTreeMap<String, Expected> {
    let text = fs::read_to_string(fixture("expected.json")).unwrap();
    let mut all: BTreeMap<String, _> = serde_json::from_str(&text).unwrap();
    all.remove(name).unwrap()
}

/// A folder with copies of a fixture's files.
pub fn copy(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture(name)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    folder
}

pub fn options(tokenizer: impl Into<TokenizerChoice>) -> AdoptOptions {
    AdoptOptions {
        tokenizer: tokenizer.into(),
        command: "emberlm data adopt".to_owned(),
        ..AdoptOptions::default()
    }
}

pub fn adopt(folder: &Path, options: &AdoptOptions) -> Result<Adopted, DataError> {
    Adoption::find(folder, options)?.run(&|_| {})
}

/// A copy of the llm.c fixture, adopted in place.
pub fn llmc() -> (tempfile::TempDir, Dataset) {
    let folder = copy("llmc");
    adopt(folder.path(), &options(TokenizerKind::Byte)).unwrap();
    let dataset = Dataset::open(folder.path()).unwrap();
    (folder, dataset)
}

/// A prepared dataset of documents, split by position.
pub fn prepared(
    documents: &[&str],
    tokenizer: TokenizerKind,
    val_fraction: f64,
) -> (tempfile::TempDir, Dataset) {
    let folder = tempfile::tempdir().unwrap();
    let inputs = folder.path().join("in");
    fs::create_dir(&inputs).unwrap();
    for (i, document) in documents.iter().enumerate() {
        fs::write(inputs.join(format!("{i:03}.txt")), document).unwrap();
    }
    let options = PrepareOptions {
        tokenizer: tokenizer.into(),
        val_fraction,
        command: "emberlm prepare".to_owned(),
        ..PrepareOptions::default()
    };
    let out = folder.path().join("out");
    prepare(&[inputs], &out, &options, &|_| {}).unwrap();
    let dataset = Dataset::open(&out).unwrap();
    (folder, dataset)
}

pub fn ids(dataset: &Dataset, split: Split) -> Vec<u32> {
    let tokens = dataset.split(split).unwrap();
    tokens.read(0, tokens.len()).unwrap()
}

pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<_> = entries.map(|e| name(e).into_string().unwrap()).collect();
    names.sort();
    names
}

/// Edits the manifest of a dataset.
pub fn edit_manifest(folder: &Path, edit: impl FnOnce(&mut serde_json::Value)) {
    let path = folder.join("dataset.json");
    let mut value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    edit(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

/// Writes the mask of the training shard, and enters it in the manifest with `learnt` targets.
pub fn write_mask(folder: &Path, mask: &[u8], learnt: u64) {
    fs::write(folder.join("train_00000.mask"), mask).unwrap();
    let hash = blake3::hash(mask).to_hex().to_string();
    edit_manifest(folder, |manifest| {
        manifest["splits"]["train"]["shards"][0]["mask"] =
            serde_json::json!({"file": "train_00000.mask", "learnt": learnt, "blake3": hash});
    });
}

/// Changes the bytes of a file.
pub fn edit_file(path: &Path, edit: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    edit(&mut bytes);
    fs::write(path, bytes).unwrap();
}
