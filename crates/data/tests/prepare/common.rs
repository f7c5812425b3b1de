//! A temporary folder with inputs and outputs, and shared helpers.

use std::fs;
use std::path::{Path, PathBuf};

use emberlm_data::{DataError, Dataset, Manifest, PrepareOptions, Split, prepare};
use emberlm_tokenizer::TokenizerChoice;

pub struct Workspace {
    folder: tempfile::TempDir,
}

impl Workspace {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("in")).unwrap();
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn out(&self) -> PathBuf {
        self.path("out")
    }

    /// Writes an input file and returns its path.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path("in").join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// The files next to the input folder, including hidden ones. There are none after an error.
    pub fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != "in").collect()
    }
}

pub fn options(tokenizer: impl Into<TokenizerChoice>, val_fraction: f64) -> PrepareOptions {
    PrepareOptions {
        tokenizer: tokenizer.into(),
        val_fraction,
        command: "emberlm prepare in --out out".to_owned(),
        ..PrepareOptions::default()
    }
}

pub fn run(
    inputs: &[PathBuf],
    out: &Path,
    options: &PrepareOptions,
) -> Result<Manifest, DataError> {
    prepare(inputs, out, options, &|_| {}).map(|prepared| prepared.manifest)
}

pub fn tokens(dataset: &Dataset, split: Split) -> Vec<u32> {
    let split = dataset.split(split).unwrap();
    split.read(0, split.len()).unwrap()
}
