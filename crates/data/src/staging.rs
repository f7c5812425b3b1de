//! A dataset directory that is either complete or absent, and whose interrupted writing can be resumed.
//!
//! Beside the output `NAME` lies `.NAME.partial` while it is written:
//!
//! | in it | what it is |
//! |---|---|
//! | `data` | the dataset: synced, and renamed to `NAME` when it is whole |
//! | `plan.json`, `progress.json` | what it is made of, and how far it is ([`crate::prepare()`]'s) |
//! | `stdin` | what came from standard input |
//! | `replaced` | the dataset that was there before, for the moment of the exchange |
//! | `lock` | held by the process that writes; the system lets go of it when that ends, however it does |

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use emberlm_tokenizer::{TOKENIZER_FILE, Tokenizer, TokenizerKind};

use crate::block_hashes::{BLOCKS_FILE, DatasetBlocks};
use crate::{DataError, MANIFEST_FILE, Manifest, ShardEntry, Split};

/// In the partial folder: the progress of the dataset. While it exists the dataset can be resumed.
pub(crate) const PROGRESS_FILE: &str = "progress.json";

/// The treatment of a dataset whose writing was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfinished {
    /// Refused with an error.
    Refuse,
    /// Removed and written from scratch.
    Discard,
    /// Continued.
    Continue,
}

/// A directory being written; dropping it without [`Staging::commit`] removes it, unless it can be resumed.
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
    /// Begins the directory `out`, or resumes it. Where it exists, `force` must say that it may be replaced, and
    /// it must be a dataset with nothing else in it, or empty.
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
        let begun = this.keeps() && this.data.is_dir();
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

    /// The manifest of `out`, if it was made whole by `command` before the process that made it could say so.
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

    /// The folder of the files until they are committed.
    pub(crate) fn folder(&self) -> &Path {
        &self.data
    }

    /// The folder of notes, which do not become part of the dataset.
    pub(crate) fn notes(&self) -> &Path {
        &self.partial
    }

    /// Returns true if there is something to resume.
    pub(crate) fn resumes(&self) -> bool {
        self.resumes
    }

    /// Returns true if there is something that an error must not take away.
    pub(crate) fn keeps(&self) -> bool {
        self.partial.join(PROGRESS_FILE).exists()
    }

    /// The output.
    pub(crate) fn out(&self) -> &Path {
        &self.out
    }

    /// Writes the tokenizer's own file, if it has one.
    pub(crate) fn save_tokenizer(&self, tokenizer: &Tokenizer) -> Result<(), DataError> {
        if tokenizer.save(&self.data)? {
            let path = self.data.join(TOKENIZER_FILE);
            let sync = || File::open(&path)?.sync_all();
            sync().map_err(DataError::io("write", &path))?;
        }
        Ok(())
    }

    /// Writes the block hashes and the manifest, then puts the directory in its place.
    pub(crate) fn commit(
        mut self,
        manifest: &Manifest,
        blocks: &DatasetBlocks,
    ) -> Result<(), DataError> {
        blocks.write(&self.data)?;
        manifest.write(&self.data)?;
        sync_folder(&self.data)?;
        // A directory cannot be renamed onto a full one: the old one makes room first, and comes back on an error.
        let replaced = self.replaced();
        if fs::symlink_metadata(&self.out).is_ok() {
            fs::rename(&self.out, &replaced).map_err(DataError::io("replace", &self.out))?;
        }
        if let Err(source) = fs::rename(&self.data, &self.out) {
            self.restore_replaced()?;
            return Err(DataError::io("create", &self.out)(source));
        }
        sync_folder(&self.parent)?;
        // What is left of the partial folder goes with this.
        self.committed = true;
        Ok(())
    }

    fn replaced(&self) -> PathBuf {
        self.partial.join("replaced")
    }

    /// Puts the dataset back that had made room for another which did not come; whether there was one.
    fn restore_replaced(&self) -> Result<bool, DataError> {
        let replaced = self.replaced();
        let alone = replaced.exists() && fs::symlink_metadata(&self.out).is_err();
        if alone {
            fs::rename(&replaced, &self.out).map_err(DataError::io("restore", &self.out))?;
        }
        Ok(alone)
    }

    /// Removes what an earlier process left, but for its lock, which is ours, and, if wanted, its standard input.
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

/// In the partial folder: what came from standard input, whole.
pub(crate) const INPUT_FILE: &str = "stdin";

const LOCK_FILE: &str = "lock";

impl Drop for Staging {
    fn drop(&mut self) {
        // Some systems do not remove files that are open.
        self.lock = None;
        if self.committed || !self.keeps() {
            // The error that led here is the one to report.
            let _ = fs::remove_dir_all(&self.partial);
        }
    }
}

/// Makes the folder `partial` where it is not there, and holds it for this process.
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
        // A file system without locks: it is the user's care then.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(lock),
    }
}

/// The output's path, links resolved, if it may be written.
fn check_output(out: &Path, force: bool) -> Result<PathBuf, DataError> {
    let path = out.to_owned();
    if fs::symlink_metadata(out).is_err() {
        return Ok(path);
    }
    if !force {
        return Err(DataError::OutputExists { path });
    }
    let refuse = |reason: String| DataError::OutputNotADataset {
        path: path.clone(),
        reason,
    };
    let real = fs::canonicalize(out).map_err(DataError::io("read", out))?;
    if !real.is_dir() {
        return Err(refuse("it is not a folder".to_owned()));
    }
    match foreign_content(&real)? {
        None => Ok(real),
        Some(reason) => Err(refuse(reason)),
    }
}

/// The reason that `folder` is something other than a dataset, if it is.
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
        return Ok(Some("its shards were there before it was".to_owned()));
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

/// The hidden folder beside `out` that it is written in: the same each time, so that it is found again.
fn partial_folder(out: &Path) -> Result<(PathBuf, PathBuf), DataError> {
    let bad_name = || DataError::Value {
        field: "out",
        value: out.display().to_string(),
        rule: "it must end in a folder's name",
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

/// Removes a folder and all in it, if it is there.
fn remove_folder(folder: &Path) -> Result<(), DataError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(DataError::io("remove", folder)(error))
        }
        _ => Ok(()),
    }
}

/// Waits until a folder's entries are on the disk.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), DataError> {
    if cfg!(unix) {
        let sync = || File::open(folder)?.sync_all();
        sync().map_err(DataError::io("write", folder))?;
    }
    Ok(())
}
