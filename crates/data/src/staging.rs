//! A dataset directory that is whole or absent.
//!
//! Everything is written into a hidden folder beside the output, synced, and renamed. What goes wrong before leaves the
//! output as it was, and the hidden folder is removed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use emberlm_tokenizer::{TOKENIZER_FILE, Tokenizer, TokenizerKind};

use crate::{DataError, MANIFEST_FILE, Manifest, ShardEntry, Split};

/// A directory being written; dropping it without [`Staging::commit`] removes it.
pub(crate) struct Staging {
    out: PathBuf,
    parent: PathBuf,
    folder: PathBuf,
    committed: bool,
}

impl Staging {
    /// Begins the directory `out`. Where it exists, `force` must say that it may be replaced, and it must be a dataset
    /// with nothing else in it, or empty.
    pub(crate) fn begin(out: &Path, force: bool) -> Result<Self, DataError> {
        let out = check_output(out, force)?;
        let bad_name = || DataError::Value {
            field: "out",
            value: out.display().to_string(),
            rule: "it must end in a folder's name",
        };
        let name = out.file_name().ok_or_else(bad_name)?;
        let parent = match out.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        fs::create_dir_all(&parent).map_err(DataError::io("create", &parent))?;
        let folder = hidden_sibling(&parent, name, "partial");
        fs::create_dir(&folder).map_err(DataError::io("create", &folder))?;
        Ok(Self {
            out,
            parent,
            folder,
            committed: false,
        })
    }

    /// Where the files belong until they are committed.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes the tokenizer's own file, if it has one.
    pub(crate) fn save_tokenizer(&self, tokenizer: &Tokenizer) -> Result<(), DataError> {
        if tokenizer.save(&self.folder)? {
            let path = self.folder.join(TOKENIZER_FILE);
            let sync = || File::open(&path)?.sync_all();
            sync().map_err(DataError::io("write", &path))?;
        }
        Ok(())
    }

    /// Writes the manifest, then puts the directory in its place.
    pub(crate) fn commit(mut self, manifest: &Manifest) -> Result<(), DataError> {
        manifest.write(&self.folder)?;
        sync_folder(&self.folder)?;
        // A directory cannot be renamed onto a full one: the old one makes room first, and comes back on an error.
        let old = fs::symlink_metadata(&self.out).is_ok().then(|| {
            let name = self.out.file_name().unwrap_or_default();
            hidden_sibling(&self.parent, name, "replaced")
        });
        if let Some(old) = &old {
            fs::rename(&self.out, old).map_err(DataError::io("replace", &self.out))?;
        }
        if let Err(source) = fs::rename(&self.folder, &self.out) {
            if let Some(old) = &old {
                fs::rename(old, &self.out).map_err(DataError::io("restore", &self.out))?;
            }
            return Err(DataError::io("create", &self.out)(source));
        }
        self.committed = true;
        if let Some(old) = &old {
            fs::remove_dir_all(old).map_err(DataError::io("remove", old))?;
        }
        sync_folder(&self.parent)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.committed {
            // The error that led here is the one to be told.
            let _ = fs::remove_dir_all(&self.folder);
        }
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

/// Why `folder` is not a dataset and nothing else, if it is not.
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
    let mut ours = vec![OsString::from(MANIFEST_FILE)];
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

/// A path in `parent` that nobody else uses: hidden, so that no command takes it for an input.
fn hidden_sibling(parent: &Path, name: &std::ffi::OsStr, purpose: &str) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{purpose}-{}-{count}", process::id()));
    parent.join(hidden)
}

/// Waits until a folder's entries are on the disk.
fn sync_folder(folder: &Path) -> Result<(), DataError> {
    if cfg!(unix) {
        let sync = || File::open(folder)?.sync_all();
        sync().map_err(DataError::io("write", folder))?;
    }
    Ok(())
}
