//! A temporary folder with inputs and outputs, and shared helpers.

use std::fs;
use std::path::{Path, PathBuf};

use emberlm_data::{
    DataError, Dataset, Encoding, InputOptions, Manifest, OnError, PrepareOptions, Prepared, Split,
    prepare,
};
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

    /// Prepares the dataset `out`.
    #[track_caller]
    pub fn prepared(&self, inputs: &[PathBuf], options: &PrepareOptions) -> Prepared {
        prepare(inputs, &self.out(), options, &|_| {}).unwrap()
    }

    /// As [`Self::prepared`], with the manifest only.
    #[track_caller]
    pub fn manifest(&self, inputs: &[PathBuf], options: &PrepareOptions) -> Manifest {
        self.prepared(inputs, options).manifest
    }

    /// The message of a preparation that must fail.
    #[track_caller]
    pub fn refusal(&self, inputs: &[PathBuf], options: &PrepareOptions) -> String {
        let result = prepare(inputs, &self.out(), options, &|_| {});
        result.unwrap_err().to_string()
    }

    /// The dataset `out`.
    #[track_caller]
    pub fn dataset(&self) -> Dataset {
        Dataset::open(self.out()).unwrap()
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

/// Options for conversations in ChatML.
pub fn chat(options: PrepareOptions) -> PrepareOptions {
    PrepareOptions {
        encoding: Encoding::Chat {
            template: "chatml".to_owned(),
        },
        ..options
    }
}

/// Options that skip broken records.
pub fn skip(options: PrepareOptions) -> PrepareOptions {
    PrepareOptions {
        input: InputOptions {
            on_error: OnError::Skip,
            ..InputOptions::default()
        },
        ..options
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
