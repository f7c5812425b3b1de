//! A run's directory, held by one process at a time.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::checkpoint;
use crate::error::TrainError;

/// A run's configuration.
pub const CONFIG_FILE: &str = "config.toml";
/// Held by the process that trains the run; it holds that process's number.
pub const LOCK_FILE: &str = "lock";

/// A run's directory that this process alone may write to. The system gives the lock back when the process ends, however
/// it ends.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    _lock: File,
}

impl RunFolder {
    /// The directory of a new run.
    ///
    /// # Errors
    /// It cannot be made, holds a run already, or is held by another process.
    pub fn create(path: &Path, config: &str) -> Result<Self, TrainError> {
        let file = path.join(CONFIG_FILE);
        let exists = || TrainError::RunExists {
            path: path.to_owned(),
        };
        if file.exists() {
            return Err(exists());
        }
        for folder in [checkpoint::FOLDER, "samples"] {
            let folder = path.join(folder);
            fs::create_dir_all(&folder).map_err(TrainError::file("create", &folder))?;
        }
        let folder = Self::lock(path)?;
        // Another process may have been as far as this before.
        if file.exists() {
            return Err(exists());
        }
        folder.write_config(config)?;
        Ok(folder)
    }

    /// The directory of a run that was begun.
    ///
    /// # Errors
    /// It holds no run, or is held by another process.
    pub fn open(path: &Path) -> Result<Self, TrainError> {
        if !path.join(CONFIG_FILE).exists() {
            return Err(TrainError::NoRun {
                path: path.to_owned(),
            });
        }
        let folder = Self::lock(path)?;
        checkpoint::sweep(path)?;
        Ok(folder)
    }

    fn lock(path: &Path) -> Result<Self, TrainError> {
        let file = path.join(LOCK_FILE);
        let mut lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&file)
            .map_err(TrainError::file("create", &file))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(TrainError::RunLocked {
                    path: path.to_owned(),
                    process: fs::read_to_string(&file).unwrap_or_default(),
                });
            }
            // A file system without locks: it is the user's care then.
            Err(TryLockError::Error(_)) => {}
        }
        let number = std::process::id().to_string();
        // Only for people to read.
        let _ = lock
            .set_len(0)
            .and_then(|()| lock.write_all(number.as_bytes()));
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// Whether a process holds a run's directory.
    pub fn is_held(path: &Path) -> bool {
        let lock = File::open(path.join(LOCK_FILE));
        lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// Writes the run's configuration, whole or not at all.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_config(&self, config: &str) -> Result<(), TrainError> {
        write_whole(&self.path.join(CONFIG_FILE), config.as_bytes())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Writes a file beside its place, syncs it, and renames it.
///
/// # Errors
/// It cannot be written.
pub fn write_whole(path: &Path, content: &[u8]) -> Result<(), TrainError> {
    let aside = path.with_extension("partial");
    let written = File::create(&aside)
        .and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&aside, path));
    written.map_err(TrainError::file("write", path))
}
