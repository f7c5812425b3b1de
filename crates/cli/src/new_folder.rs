//! A folder that a command creates: whole or absent, and not named like a file.

use std::fs;
use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use tempfile::TempDir;

use crate::error::CliError;

/// A folder being filled beside its place; dropping it without [`NewFolder::finish`] removes it.
#[derive(Debug)]
pub struct NewFolder {
    out: PathBuf,
    aside: TempDir,
}

impl NewFolder {
    /// Begins the folder `out`, which is not there yet or is empty. With `force` it may be a model, which is replaced.
    pub fn for_model(out: &Path, force: bool) -> Result<Self, CliError> {
        let is_model = |folder: &Path| {
            let mut names = ["config.json", "model.json"].iter();
            names.any(|name| folder.join(name).exists())
        };
        Self::begin(out, force, "a model", is_model)
    }

    /// Begins the folder `out`, which must be absent or empty. With `force` it may hold a `what` (`is_one` decides), which
    /// is replaced.
    pub fn begin(
        out: &Path,
        force: bool,
        what: &str,
        is_one: impl Fn(&Path) -> bool,
    ) -> Result<Self, CliError> {
        check(out, force, what, is_one)?;
        let parent = match out.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(parent).map_err(CliError::io("create", parent))?;
        let aside = tempfile::Builder::new()
            .prefix(".emberlm-partial-")
            .tempdir_in(parent)
            .map_err(CliError::io("create a folder in", parent))?;
        Ok(Self {
            out: out.to_owned(),
            aside,
        })
    }

    /// The folder for its files until it is finished.
    pub fn path(&self) -> &Path {
        self.aside.path()
    }

    /// Puts it in its place.
    pub fn finish(self) -> Result<(), CliError> {
        if self.out.exists() {
            fs::remove_dir_all(&self.out).map_err(CliError::io("replace", &self.out))?;
        }
        allow_reading(self.path())?;
        // No longer removed when dropped: from here on it is the result.
        let aside = self.aside.keep();
        fs::rename(&aside, &self.out).map_err(CliError::io("create", &self.out))
    }
}

/// Only the owner can read a temporary folder. This sets the permissions of an ordinary folder.
#[cfg(unix)]
fn allow_reading(folder: &Path) -> Result<(), CliError> {
    use std::os::unix::fs::PermissionsExt;

    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
        .map_err(CliError::io("set the permissions of", folder))
}

#[cfg(not(unix))]
fn allow_reading(_folder: &Path) -> Result<(), CliError> {
    Ok(())
}

/// Extensions of files that hold a model, a dataset or an archive.
const FILE_EXTENSIONS: [&str; 18] = [
    "gguf",
    "ggml",
    "safetensors",
    "bin",
    "pt",
    "pth",
    "ckpt",
    "onnx",
    "h5",
    "npz",
    "npy",
    "json",
    "jsonl",
    "csv",
    "parquet",
    "txt",
    "zip",
    "tar",
];

/// The parser of every option that names a folder to create, which `what` is written into. It refuses the name of a file of a
/// format that is not written.
pub fn folder_parser(what: &'static str) -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(move |out| match file_extension(&out) {
        Some(extension) => Err(format!(
            "{what} is written as a folder, not as a .{extension} file: name it {}",
            out.with_extension("").display()
        )),
        None => Ok(out),
    })
}

/// The extension of a file's name; `None` for a folder that exists.
fn file_extension(out: &Path) -> Option<&'static str> {
    let extension = out.extension()?.to_str()?;
    let mut known = FILE_EXTENSIONS.into_iter();
    let known = known.find(|known| extension.eq_ignore_ascii_case(known))?;
    (!out.is_dir()).then_some(known)
}

fn check(
    out: &Path,
    force: bool,
    what: &str,
    is_one: impl Fn(&Path) -> bool,
) -> Result<(), CliError> {
    let shown = out.display();
    let Ok(mut entries) = fs::read_dir(out) else {
        return match out.exists() {
            true => Err(CliError::new(format!("{shown} is a file")).hint("choose another --out")),
            false => Ok(()),
        };
    };
    if entries.next().is_none() {
        return Ok(());
    }
    match (is_one(out), force) {
        (true, true) => Ok(()),
        (true, false) => Err(CliError::new(format!("{shown} is there already"))
            .hint("choose another --out, or replace it with --force")),
        (false, _) => Err(
            CliError::new(format!("{shown} holds something that is not {what}"))
                .hint("choose another --out"),
        ),
    }
}
