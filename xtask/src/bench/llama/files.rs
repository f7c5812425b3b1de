//! The measured files: those of the types are made by `llama-quantize` from a file of F32.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::super::session::remove;
use super::checkout::LlamaCpp;
use crate::{error::Error, workspace};

/// The size of a model with random weights, which do not affect the speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Size {
    /// 506 million parameters.
    #[value(name = "0.5b")]
    Half,
    /// 1.1 billion parameters, the sizes of TinyLlama.
    #[value(name = "1.1b")]
    One,
}

impl Size {
    /// The name of the model.
    fn name(self) -> &'static str {
        match self {
            Self::Half => "random-0.5B",
            Self::One => "random-1.1B",
        }
    }

    /// The settings of the preset `llama`. Rows are multiples of 256, the longest block of a type.
    fn settings(self) -> [(&'static str, usize); 7] {
        let [blocks, width, heads, inner] = match self {
            Self::Half => [24, 1280, 20, 3584],
            Self::One => [22, 2048, 32, 5632],
        };
        [
            ("n_layers", blocks),
            ("d_model", width),
            ("heads", heads),
            ("kv_heads", 4),
            ("feed_forward.width", inner),
            ("vocab_size", 32_000),
            ("seq_len", 8192),
        ]
    }
}

/// The types that `llama-quantize` writes and emberlm reads, in lower case.
pub const TYPES: [&str; 7] = ["f32", "f16", "q8_0", "q4_0", "q4_1", "q4_k_m", "q6_k"];

/// A file of a model in a type.
#[derive(Debug, Clone)]
pub struct ModelFile {
    /// The model's name.
    pub model: String,
    /// Its type in lower case.
    pub kind: String,
    pub path: PathBuf,
    pub bytes: u64,
}

/// The folder of the files. Files of an earlier run are used again.
pub struct ModelFiles<'a> {
    folder: PathBuf,
    llama_cpp: &'a LlamaCpp,
    /// The program `emberlm`, which makes models with random weights.
    emberlm: &'a Path,
}

impl<'a> ModelFiles<'a> {
    /// Creates the folder.
    pub fn new(folder: PathBuf, llama_cpp: &'a LlamaCpp, emberlm: &'a Path) -> Result<Self, Error> {
        fs::create_dir_all(&folder).map_err(|source| Error::Write {
            path: folder.clone(),
            source,
        })?;
        Ok(Self {
            folder,
            llama_cpp,
            emberlm,
        })
    }

    /// The F32 file of a model given in any type.
    pub fn unpacked(&self, given: &Path) -> Result<ModelFile, Error> {
        let model = model_name(given);
        self.file(&model, "f32", |path| {
            workspace::success(&mut self.quantize(given, path, "f32"))
        })
    }

    /// The F32 file of a model with random weights.
    pub fn random(&self, size: Size) -> Result<ModelFile, Error> {
        self.file(size.name(), "f32", |path| {
            let model = self.folder.join(size.name());
            workspace::success(&mut self.create(size, &model))?;
            let mut export = Command::new(self.emberlm);
            export.arg("export").arg(&model);
            export.args(["--format", "gguf", "--type", "f32", "--force", "--out"]);
            // Stdout is for the results.
            export.arg(path).stdout(std::process::Stdio::null());
            workspace::success(&mut export)?;
            remove(&model)
        })
    }

    fn create(&self, size: Size, model: &Path) -> Command {
        let mut command = Command::new(self.emberlm);
        command.args(["new", "--preset", "llama", "--force", "--out"]);
        command.arg(model).stdout(std::process::Stdio::null());
        for (key, value) in size.settings() {
            command.args(["--set", &format!("model.{key}={value}")]);
        }
        command
    }

    /// The file of a type, made from an F32 file.
    pub fn of_type(&self, source: &ModelFile, kind: &str) -> Result<ModelFile, Error> {
        if kind == source.kind {
            return Ok(source.clone());
        }
        self.file(&source.model, kind, |path| {
            workspace::success(&mut self.quantize(&source.path, path, kind))
        })
    }

    /// Makes a file if it does not exist. An interrupted run leaves no incomplete file.
    fn file(
        &self,
        model: &str,
        kind: &str,
        make: impl FnOnce(&Path) -> Result<(), Error>,
    ) -> Result<ModelFile, Error> {
        let path = self
            .folder
            .join(format!("{model}-{}.gguf", kind.to_uppercase()));
        if !path.exists() {
            eprintln!("making {}", path.display());
            let unfinished = path.with_extension("unfinished");
            make(&unfinished)?;
            fs::rename(&unfinished, &path).map_err(|source| Error::Write {
                path: path.clone(),
                source,
            })?;
        }
        let bytes = fs::metadata(&path).map_err(|source| Error::Read {
            path: path.clone(),
            source,
        })?;
        Ok(ModelFile {
            model: model.to_owned(),
            kind: kind.to_owned(),
            bytes: bytes.len(),
            path,
        })
    }

    fn quantize(&self, from: &Path, to: &Path, kind: &str) -> Command {
        let mut command = Command::new(self.llama_cpp.program("llama-quantize"));
        // The given file may be quantized.
        command.arg("--allow-requantize").arg(from).arg(to);
        // It prints a line per tensor.
        command
            .arg(kind.to_uppercase())
            .stdout(std::process::Stdio::null());
        command.stderr(std::process::Stdio::null());
        command
    }
}

/// The name of a model's file without its type: `SmolLM2-135M-Instruct` of `SmolLM2-135M-Instruct.Q4_1.gguf`.
fn model_name(path: &Path) -> String {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let lower = name.to_lowercase();
    let suffix = TYPES
        .iter()
        .filter(|kind| lower.ends_with(&format!("-{kind}")) || lower.ends_with(&format!(".{kind}")))
        .map(|kind| kind.len() + 1)
        .max();
    // The suffix is ASCII, so the cut is between characters.
    name[..name.len() - suffix.unwrap_or(0)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_named_without_its_type() {
        for (file, expected) in [
            ("SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct"),
            ("folder/tiny-q4_k_m.gguf", "tiny"),
            ("tiny-f32.gguf", "tiny"),
            ("tiny.gguf", "tiny"),
            ("Q8_0.gguf", "Q8_0"),
        ] {
            assert_eq!(model_name(Path::new(file)), expected, "{file}");
        }
    }

    #[test]
    fn random_models_have_rows_of_whole_blocks() {
        for size in [Size::Half, Size::One] {
            for (key, value) in size.settings() {
                let is_row = ["d_model", "feed_forward.width"].contains(&key);
                assert!(!is_row || value % 256 == 0, "{size:?} {key}");
            }
        }
    }

    #[test]
    fn files_are_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let llama_cpp = LlamaCpp::at(Path::new("build"));
        let models = folder.path().join("models");
        let files = ModelFiles::new(models, &llama_cpp, Path::new("emberlm")).unwrap();
        let failing = files.file("a", "q8_0", |path| {
            fs::write(path, "incomplete").unwrap();
            let path = path.to_owned();
            let reason = "interrupted".to_owned();
            Err(Error::Invalid { path, reason })
        });
        assert!(failing.is_err());
        let made = files.file("a", "q8_0", |path| {
            fs::write(path, "complete").unwrap();
            Ok(())
        });
        assert_eq!(made.unwrap().bytes, 8);
        let found = files.file("a", "q8_0", |_| panic!("it exists")).unwrap();
        assert_eq!(fs::read_to_string(found.path).unwrap(), "complete");
    }
}
