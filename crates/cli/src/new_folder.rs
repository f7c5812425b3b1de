//! Output folders that appear complete or not at all. A name with a file extension of another format is
//! rejected.

use std::fs;
use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use emberlm_gguf::is_gguf;
use emberlm_system::write;
use tempfile::TempDir;

use crate::error::CliError;

/// An output folder under construction next to its destination. Dropping it without [`NewFolder::finish`]
/// removes it.
#[derive(Debug)]
pub struct NewFolder {
    out: PathBuf,
    aside: TempDir,
}

impl NewFolder {
    /// Starts the model folder `out`, which must be absent or empty. With `force`, an existing model is
    /// replaced.
    pub fn for_model(out: &Path, force: bool) -> Result<Self, CliError> {
        let is_model = |folder: &Path| {
            let mut names = ["config.json", "model.json"].iter();
            names.any(|name| folder.join(name).exists())
        };
        Self::begin(out, force, "a model", is_model)
    }

    /// Starts the folder `out`, which must be absent or empty; of a symbolic link, its target. With `force`, it may hold a
    /// `what` (decided by `is_one`), which is replaced.
    pub fn begin(
        out: &Path,
        force: bool,
        what: &str,
        is_one: impl Fn(&Path) -> bool,
    ) -> Result<Self, CliError> {
        check(out, force, what, is_one)?;
        let out = write::target(out).map_err(CliError::io("write", out))?;
        let parent = match out.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(parent).map_err(CliError::io("create", parent))?;
        let aside = tempfile::Builder::new()
            .prefix(".emberlm-partial-")
            .tempdir_in(parent)
            .map_err(CliError::io("create a folder in", parent))?;
        Ok(Self { out, aside })
    }

    /// The staging folder to write files into.
    pub fn path(&self) -> &Path {
        self.aside.path()
    }

    /// Moves the folder to its destination.
    pub fn finish(self) -> Result<(), CliError> {
        if self.out.exists() {
            fs::remove_dir_all(&self.out).map_err(CliError::io("replace", &self.out))?;
        }
        allow_reading(self.path())?;
        let Self { out, aside } = self;
        fs::rename(aside.path(), &out).map_err(CliError::io("create", &out))?;
        // Disarms the removal on drop: the folder is now the result.
        let _ = aside.keep();
        Ok(())
    }
}

/// Sets the permissions of an ordinary folder. Temporary folders are only readable by their owner.
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

/// Extensions of model, dataset and archive files.
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

/// A parser for options that name a folder to create. `what` describes the contents. Rejects names with a
/// file extension of a format that is not written.
pub fn folder_parser(what: &'static str) -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(move |out| match file_extension(&out) {
        Some(extension) => Err(as_folder(what, extension, &out)),
        None => Ok(out),
    })
}

/// [`folder_parser`] for options that may also name a GGUF file, which the command checks.
pub fn folder_or_gguf_parser(what: &'static str) -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(move |out| match file_extension(&out) {
        Some(extension) if !is_gguf(&out) => Err(as_folder(what, extension, &out)),
        _ => Ok(out),
    })
}

/// The message about a name with the extension of a file.
pub fn as_folder(what: &str, extension: &str, out: &Path) -> String {
    format!(
        "{what} is written as a folder, not as a .{extension} file: name it {}",
        out.with_extension("").display()
    )
}

/// The extension in [`FILE_EXTENSIONS`] that `out` ends with. Returns `None` if `out` is an existing folder.
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
