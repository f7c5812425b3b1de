//! The measured files: those of the types are made by `llama-quantize` from a file of F32.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::checkout::LlamaCpp;
use super::random_model::{self, Size};
use crate::{error::Error, workspace};

/// A type that `llama-quantize` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Type {
    F32,
    F16,
    #[value(name = "q8_0")]
    Q8_0,
    #[value(name = "q4_0")]
    Q4_0,
    #[value(name = "q4_1")]
    Q4_1,
    #[value(name = "q4_k_m")]
    Q4KM,
    #[value(name = "q6_k")]
    Q6K,
}

impl Type {
    /// The name in `llama-quantize`.
    fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Q8_0 => "Q8_0",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q4KM => "Q4_K_M",
            Self::Q6K => "Q6_K",
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A file of a model in a type.
#[derive(Debug, Clone)]
pub struct ModelFile {
    /// The model's name.
    pub model: String,
    pub kind: Type,
    pub path: PathBuf,
    pub bytes: u64,
}

/// The folder of the files. Files of an earlier run are used again.
pub struct ModelFiles<'a> {
    folder: PathBuf,
    llama_cpp: &'a LlamaCpp,
}

impl<'a> ModelFiles<'a> {
    /// Creates the folder.
    pub fn new(folder: PathBuf, llama_cpp: &'a LlamaCpp) -> Result<Self, Error> {
        fs::create_dir_all(&folder).map_err(|source| Error::Write {
            path: folder.clone(),
            source,
        })?;
        Ok(Self { folder, llama_cpp })
    }

    /// The F32 file of a model given in any type.
    pub fn unpacked(&self, given: &Path) -> Result<ModelFile, Error> {
        let model = model_name(given);
        self.file(&model, Type::F32, |path| {
            workspace::success(&mut self.quantize(given, path, Type::F32))
        })
    }

    /// The F32 file of a model with random weights.
    pub fn random(&self, size: Size) -> Result<ModelFile, Error> {
        self.file(size.name(), Type::F32, |path| {
            random_model::write(size, path)
        })
    }

    /// The file of a type, made from an F32 file.
    pub fn of_type(&self, source: &ModelFile, kind: Type) -> Result<ModelFile, Error> {
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
        kind: Type,
        make: impl FnOnce(&Path) -> Result<(), Error>,
    ) -> Result<ModelFile, Error> {
        let path = self.folder.join(format!("{model}-{kind}.gguf"));
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
            kind,
            bytes: bytes.len(),
            path,
        })
    }

    fn quantize(&self, from: &Path, to: &Path, kind: Type) -> Command {
        let mut command = Command::new(self.llama_cpp.program("llama-quantize"));
        // The given file may be quantized.
        command.arg("--allow-requantize").arg(from).arg(to);
        // It prints a line per tensor.
        command.arg(kind.name()).stdout(std::process::Stdio::null());
        command.stderr(std::process::Stdio::null());
        command
    }
}

/// The name of a model's file without its type: `SmolLM2-135M-Instruct` of `SmolLM2-135M-Instruct.Q4_1.gguf`.
fn model_name(path: &Path) -> String {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let kinds = <Type as clap::ValueEnum>::value_variants();
    let kinds = kinds.iter().map(|kind| kind.name().to_lowercase());
    let lower = name.to_lowercase();
    let suffix = kinds
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
    fn files_are_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let llama_cpp = LlamaCpp::at(Path::new("build"));
        let files = ModelFiles::new(folder.path().join("models"), &llama_cpp).unwrap();
        let failing = files.file("a", Type::Q8_0, |path| {
            fs::write(path, "incomplete").unwrap();
            let path = path.to_owned();
            let reason = "interrupted".to_owned();
            Err(Error::Invalid { path, reason })
        });
        assert!(failing.is_err());
        let made = files.file("a", Type::Q8_0, |path| {
            fs::write(path, "complete").unwrap();
            Ok(())
        });
        assert_eq!(made.unwrap().bytes, 8);
        let found = files
            .file("a", Type::Q8_0, |_| panic!("it exists"))
            .unwrap();
        assert_eq!(fs::read_to_string(found.path).unwrap(), "complete");
    }
}
