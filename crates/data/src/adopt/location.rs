//! The location of an adopted dataset: the folder of the token files, or a new folder with links to them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use emberlm_tokenizer::{TOKENIZER_FILE, Tokenizer, TokenizerKind};

use crate::block_hashes::{BLOCKS_FILE, DatasetBlocks};
use crate::staging::{Staging, Unfinished};
use crate::{DataError, MANIFEST_FILE, Manifest};

/// A location that was checked to be writable.
pub(super) enum DatasetLocation {
    /// The folder of the token files.
    TokenFolder,
    /// A new folder with links to the token files.
    LinkFolder { out: PathBuf, staging: Box<Staging> },
}

impl DatasetLocation {
    /// Returns true if the dataset is in the folder of the token files.
    pub(super) fn is_in_place(&self) -> bool {
        matches!(self, Self::TokenFolder)
    }

    /// Checks that the manifest can be written into `out`, or into `folder` if `out` is `None`.
    pub(super) fn begin(
        folder: &Path,
        out: Option<&Path>,
        force: bool,
        tokenizer: &Tokenizer,
    ) -> Result<Self, DataError> {
        if let Some(out) = out {
            return Ok(Self::LinkFolder {
                out: out.to_owned(),
                staging: Box::new(Staging::begin(out, force, Unfinished::Discard)?),
            });
        }
        let path = folder.join(MANIFEST_FILE);
        if fs::symlink_metadata(&path).is_ok() {
            if !force {
                return Err(DataError::OutputExists { path });
            }
            // Do not replace another program's file of this name.
            Manifest::read(folder).map_err(|error| DataError::OutputNotADataset {
                path,
                reason: error.to_string(),
            })?;
        } else if folder.join(BLOCKS_FILE).exists() {
            let path = folder.join(BLOCKS_FILE);
            return Err(DataError::OutputExists { path });
        }
        check_tokenizer_file(folder, tokenizer)?;
        Manifest::check_writable(folder)?;
        Ok(Self::TokenFolder)
    }

    /// Writes the manifest, the links and the tokenizer file. Returns the dataset folder.
    pub(super) fn finish<'a>(
        self,
        folder: &Path,
        names: impl Iterator<Item = &'a String>,
        tokenizer: &Tokenizer,
        manifest: &Manifest,
        blocks: &DatasetBlocks,
    ) -> Result<PathBuf, DataError> {
        match self {
            Self::TokenFolder => {
                if !folder.join(TOKENIZER_FILE).exists() {
                    tokenizer.save(folder)?;
                }
                blocks.write(folder)?;
                manifest.write(folder)?;
                Ok(folder.to_owned())
            }
            Self::LinkFolder { out, staging } => {
                for name in names {
                    let file = folder.join(name);
                    let file = fs::canonicalize(&file).map_err(DataError::io("read", &file))?;
                    let link = staging.folder().join(name);
                    // Fall back to a hard link where symbolic links are unavailable, as on Windows without the
                    // privilege.
                    symlink(&file, &link)
                        .or_else(|_| fs::hard_link(&file, &link))
                        .map_err(DataError::io("link to", &file))?;
                }
                staging.save_tokenizer(tokenizer)?;
                staging.commit(manifest, blocks)?;
                Ok(out)
            }
        }
    }
}

/// Checks that an existing tokenizer file in `folder` is the same as `tokenizer`. An adoption never changes existing
/// files.
fn check_tokenizer_file(folder: &Path, tokenizer: &Tokenizer) -> Result<(), DataError> {
    if tokenizer.kind() != TokenizerKind::File {
        return Ok(());
    }
    let path = folder.join(TOKENIZER_FILE);
    match fs::read(&path) {
        Ok(theirs) if theirs == tokenizer.to_tokenizer_json() => Ok(()),
        Ok(_) => Err(DataError::OtherTokenizerFile { path }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(DataError::io("read", &path)(error)),
    }
}

#[cfg(unix)]
fn symlink(file: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(file, link)
}

#[cfg(windows)]
fn symlink(file: &Path, link: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(file, link)
}
