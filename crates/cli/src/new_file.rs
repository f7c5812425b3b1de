//! Output files that appear complete or not at all.

use std::fs;
use std::path::{Path, PathBuf};

use emberlm_system::write;
use tempfile::TempPath;

use crate::error::CliError;

/// An output file under construction next to its destination. Dropping it without [`NewFile::finish`] removes it.
#[derive(Debug)]
pub struct NewFile {
    out: PathBuf,
    aside: TempPath,
}

impl NewFile {
    /// Starts the file `out`, which must be absent. With `force`, an existing file is replaced; of a symbolic link, its
    /// target. Devices and FIFOs are rejected: a file would take their place.
    pub fn begin(out: &Path, force: bool) -> Result<Self, CliError> {
        let shown = out.display();
        if out.is_dir() {
            let message = format!("{shown} is a folder");
            return Err(CliError::new(message).hint("choose another --out"));
        }
        let target = write::target(out).map_err(CliError::io("write", out))?;
        if target.exists() && !target.is_file() {
            return Err(CliError::new(format!("{shown} is not a regular file"))
                .hint("choose another --out"));
        }
        if target.exists() && !force {
            return Err(CliError::new(format!("{shown} is there already"))
                .hint("choose another --out, or replace it with --force"));
        }
        let parent = match target.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(parent).map_err(CliError::io("create", parent))?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(".emberlm-partial-");
        #[cfg(unix)]
        let ordinary = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        #[cfg(unix)]
        builder.permissions(ordinary);
        let aside = builder
            .tempfile_in(parent)
            .map_err(CliError::io("create a file in", parent))?;
        Ok(Self {
            out: target,
            aside: aside.into_temp_path(),
        })
    }

    /// The staging file to write.
    pub fn path(&self) -> &Path {
        &self.aside
    }

    /// Moves the file to its destination.
    pub fn finish(self) -> Result<(), CliError> {
        let Self { out, aside } = self;
        let moved = aside.persist(&out).map_err(|error| error.error);
        moved.map_err(CliError::io("create", &out))
    }
}
