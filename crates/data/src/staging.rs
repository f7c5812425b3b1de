//! Atomic creation of a dataset directory, which can be resumed after an interruption.
//!
//! While the dataset `NAME` is being written, the folder `.NAME.partial` next to it contains:
//!
//! | name | contents |
//! |---|---|
//! | `data` | the dataset: synced, and renamed to `NAME` when complete |
//! | `plan.json`, `progress.json` | the inputs and options, and the progress of [`crate::prepare()`] |
//! | `stdin` | a copy of standard input |
//! | `replaced` | the previous dataset, while it is exchanged for the new one |
//! | `lock` | locked by the writing process; the system releases the lock when the process ends for any reason |

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use emberlm_tokenizer::{TOKENIZER_FILE, Tokenizer, TokenizerKind};

use crate::block_hashes::{BLOCKS_FILE, DatasetBlocks};
use crate::{DataError, MANIFEST_FILE, Manifest, ShardEntry, Split};

/// The file with the progress in the partial folder. While it exists the dataset can be resumed.
pub(crate) const PROGRESS_FILE: &str = "progress.json";

/// The handling of an unfinished dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfinished {
    /// Fail with an error.
    Refuse,
    /// Remove it and start from scratch.
    Discard,
    /// Resume it.
    Continue,
}

/// A dataset directory being written. Dropping it without [`Staging::commit`] removes it, unless it can be resumed.
pub(crate) struct Staging {
    out: PathBuf,
    parent: PathBuf,
    partial: PathBuf,
    data: PathBuf,
    lock: Option<File>,
    resumes: bool,
    committed: bool,
}

impl Staging {
    /// Begins or resumes the directory `out`. If `out` exists, `force` must be set, and it must be empty or contain
    /// only a dataset.
    pub(crate) fn begin(
        out: &Path,
        force: bool,
        unfinished: Unfinished,
    ) -> Result<Self, DataError> {
        let out = check_output(out, force)?;
        let (parent, partial) = partial_folder(&out)?;
        fs::create_dir_all(&parent).map_err(DataError::io("create", &parent))?;
        let lock = lock(&out, &partial)?;
        let mut this = Self {
            data: partial.join("data"),
            out,
            parent,
            partial,
            lock: Some(lock),
            resumes: false,
            committed: false,
        };
        if this.restore_replaced()? {
            check_output(&this.out, force)?;
        }
        let begun = this.is_resumable() && this.data.is_dir();
        if begun && unfinished == Unfinished::Refuse {
            return Err(DataError::UnfinishedExists {
                path: this.out.clone(),
            });
        }
        this.resumes = begun && unfinished == Unfinished::Continue;
        if !this.resumes {
            this.clear(unfinished == Unfinished::Continue)?;
            fs::create_dir(&this.data).map_err(DataError::io("create", &this.data))?;
        }
        Ok(this)
    }

    /// Returns the manifest of `out` if `command` completed it, but the process ended before it removed the partial
    /// folder.
    pub(crate) fn finished(out: &Path, command: &str) -> Result<Option<Manifest>, DataError> {
        let Ok(manifest) = Manifest::read(out) else {
            return Ok(None);
        };
        let (_, partial) = partial_folder(out)?;
        if manifest.command != command || partial.join("data").exists() {
            return Ok(None);
        }
        remove_folder(&partial)?;
        Ok(Some(manifest))
    }

    /// The folder for the dataset's files until the commit.
    pub(crate) fn folder(&self) -> &Path {
        &self.data
    }

    /// The partial folder, for files that do not become part of the dataset.
    pub(crate) fn work_folder(&self) -> &Path {
        &self.partial
    }

    /// Returns true if an unfinished dataset is being resumed.
    pub(crate) fn resumes(&self) -> bool {
        self.resumes
    }

    /// Returns true if there is progress that must be kept after an error.
    pub(crate) fn is_resumable(&self) -> bool {
        self.partial.join(PROGRESS_FILE).exists()
    }

    /// The output path.
    pub(crate) fn out(&self) -> &Path {
        &self.out
    }

    /// Writes the tokenizer file, unless the tokenizer is built in.
    pub(crate) fn save_tokenizer(&self, tokenizer: &Tokenizer) -> Result<(), DataError> {
        if tokenizer.save(&self.data)? {
            let path = self.data.join(TOKENIZER_FILE);
            let sync = || File::open(&path)?.sync_all();
            sync().map_err(DataError::io("write", &path))?;
        }
        Ok(())
    }

    /// Writes the block hashes and the manifest, then moves the directory to its final path.
    pub(crate) fn commit(
        mut self,
        manifest: &Manifest,
        blocks: &DatasetBlocks,
    ) -> Result<(), DataError> {
        blocks.write(&self.data)?;
        manifest.write(&self.data)?;
        sync_folder(&self.data)?;
        // A directory cannot be renamed onto a non-empty one. Move the old one away first, and restore it on an
        // error.
        let replaced = self.replaced();
        if fs::symlink_metadata(&self.out).is_ok() {
            fs::rename(&self.out, &replaced).map_err(DataError::io("replace", &self.out))?;
        }
        if let Err(source) = fs::rename(&self.data, &self.out) {
            self.restore_replaced()?;
            return Err(DataError::io("create", &self.out)(source));
        }
        sync_folder(&self.parent)?;
        // Dropping `self` removes the partial folder.
        self.committed = true;
        Ok(())
    }

    fn replaced(&self) -> PathBuf {
        self.partial.join("replaced")
    }

    /// Restores the previous dataset if it was moved away and not replaced. Returns true if it was restored.
    fn restore_replaced(&self) -> Result<bool, DataError> {
        let replaced = self.replaced();
        let only_copy = replaced.exists() && fs::symlink_metadata(&self.out).is_err();
        if only_copy {
            fs::rename(&replaced, &self.out).map_err(DataError::io("restore", &self.out))?;
        }
        Ok(only_copy)
    }

    /// Removes the files of an earlier process, except the lock and, if `keep_input` is set, its standard input.
    fn clear(&self, keep_input: bool) -> Result<(), DataError> {
        for entry in fs::read_dir(&self.partial).map_err(DataError::io("read", &self.partial))? {
            let path = entry.map_err(DataError::io("read", &self.partial))?.path();
            if path.ends_with(LOCK_FILE) || keep_input && path.ends_with(INPUT_FILE) {
                continue;
            }
            match path.is_dir() {
                true => remove_folder(&path)?,
                false => fs::remove_file(&path).map_err(DataError::io("remove", &path))?,
            }
        }
        Ok(())
    }
}

/// The file in the partial folder with the complete standard input.
pub(crate) const INPUT_FILE: &str = "stdin";

const LOCK_FILE: &str = "lock";

impl Drop for Staging {
    fn drop(&mut self) {
        // Some systems cannot remove open files.
        self.lock = None;
        if self.committed || !self.is_resumable() {
            // Ignored: the error that led here is the one to report.
            let _ = fs::remove_dir_all(&self.partial);
        }
    }
}

/// Creates the folder `partial` if it does not exist, and locks it for this process.
fn lock(out: &Path, partial: &Path) -> Result<File, DataError> {
    match fs::create_dir(partial) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(DataError::io("create", partial)(error));
        }
        _ => {}
    }
    let path = partial.join(LOCK_FILE);
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(DataError::io("create", &path))?;
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) => Err(DataError::OutputBusy {
            path: out.to_owned(),
        }),
        // Without file locking, the user must not start two processes.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(lock),
    }
}

/// Checks that the output may be written. Returns its path with links resolved.
fn check_output(out: &Path, force: bool) -> Result<PathBuf, DataError> {
    let path = out.to_owned();
    if fs::symlink_metadata(out).is_err() {
        return Ok(path);
    }
    if !force {
        return Err(DataError::OutputExists { path });
    }
    let not_a_dataset = |reason: String| DataError::OutputNotADataset {
        path: path.clone(),
        reason,
    };
    let real = fs::canonicalize(out).map_err(DataError::io("read", out))?;
    if !real.is_dir() {
        return Err(not_a_dataset("it is not a folder".to_owned()));
    }
    match foreign_content(&real)? {
        None => Ok(real),
        Some(reason) => Err(not_a_dataset(reason)),
    }
}

/// The reason that `folder` is not exclusively a dataset, or `None` if it may be replaced.
fn foreign_content(folder: &Path) -> Result<Option<String>, DataError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(DataError::io("read", folder))? {
        let entry = entry.map_err(DataError::io("read", folder))?;
        names.push(entry.file_name());
    }
    if names.is_empty() {
        return Ok(None);
    }
    let manifest = match Manifest::read(folder) {
        Ok(manifest) => manifest,
        Err(error) => return Ok(Some(error.to_string())),
    };
    if manifest.adopted {
        return Ok(Some("its shards existed before the dataset".to_owned()));
    }
    let mut ours = vec![OsString::from(MANIFEST_FILE), OsString::from(BLOCKS_FILE)];
    for split in Split::ALL {
        let shards = &manifest.split(split).shards;
        ours.extend(
            shards
                .iter()
                .flat_map(ShardEntry::files)
                .map(OsString::from),
        );
    }
    if manifest.tokenizer.kind == TokenizerKind::File {
        ours.push(OsString::from(TOKENIZER_FILE));
    }
    let foreign = names.into_iter().find(|name| !ours.contains(name));
    Ok(foreign.map(|name| format!("it holds `{}`", name.display())))
}

/// The parent of `out`, and the hidden folder in it used while writing. The name is fixed, so that a later process
/// finds it.
fn partial_folder(out: &Path) -> Result<(PathBuf, PathBuf), DataError> {
    let bad_name = || DataError::Value {
        field: "out",
        value: out.display().to_string(),
        rule: "must end in a folder name",
    };
    let mut name = OsString::from(".");
    name.push(out.file_name().ok_or_else(bad_name)?);
    name.push(".partial");
    let parent = match out.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let partial = parent.join(name);
    Ok((parent, partial))
}

/// Removes a folder and its contents, if it exists.
fn remove_folder(folder: &Path) -> Result<(), DataError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(DataError::io("remove", folder)(error))
        }
        _ => Ok(()),
    }
}

/// Syncs a folder's entries to disk.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), DataError> {
    if cfg!(unix) {
        let sync = || File::open(folder)?.sync_all();
        sync().map_err(DataError::io("write", folder))?;
    }
    Ok(())
}
