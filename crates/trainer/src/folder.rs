//! A run's directory, held by one process at a time.

use std::fs::{self, File, Metadata, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use emberlm_system::{read, write};

use crate::checkpoint;
use crate::error::TrainError;

/// A run's configuration.
pub const CONFIG_FILE: &str = "config.toml";
/// Held by the process that trains the run; it holds that process's number.
pub const LOCK_FILE: &str = "lock";
/// The folder of the generated samples.
pub(crate) const SAMPLES: &str = "samples";

/// Files of directories that are not a run's, with what such a directory is.
const OTHERS: [(&str, &str); 3] = [
    ("dataset.json", "a dataset"),
    ("config.json", "a model"),
    ("model.json", "a checkpoint"),
];

/// A run's directory that only this process may write to. The system releases the lock when the process ends, however
/// it ends.
///
/// The directory itself is locked: whoever removes the lock file lets nobody in. The lock file is locked as well, for file
/// systems that cannot lock a directory.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    directory: LockedFile,
    lock: LockedFile,
}

/// An open file or directory, and whether it is locked.
#[derive(Debug)]
struct LockedFile {
    file: File,
    locked: bool,
}

impl LockedFile {
    /// Locks it; none where another process has done so.
    fn lock(file: File) -> Option<Self> {
        // A process that only looks whether it is locked holds it for a moment.
        for _ in 0..TRIES {
            match file.try_lock() {
                Ok(()) => return Some(Self { file, locked: true }),
                Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
                // A file system without locks: it is the user's care then.
                Err(TryLockError::Error(_)) => {
                    let locked = false;
                    return Some(Self { file, locked });
                }
            }
        }
        None
    }

    /// Returns true if a path still names it.
    fn is_at(&self, path: &Path) -> bool {
        match (self.file.metadata(), fs::metadata(path)) {
            (Ok(held), Ok(found)) => identity(&held) == identity(&found),
            _ => false,
        }
    }
}

/// The number of attempts to lock, and the time between them.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(10);

#[cfg(unix)]
fn identity(metadata: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;

    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn identity(metadata: &Metadata) -> Option<std::time::SystemTime> {
    metadata.created().ok()
}

/// Returns true if another process has locked a file or directory.
fn is_locked(path: &Path) -> bool {
    let file = File::open(path);
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

impl RunFolder {
    /// The directory of a new run.
    ///
    /// # Errors
    /// It cannot be made, holds a run, a dataset or a model already, or is held by another process.
    pub fn create(path: &Path, config: &str) -> Result<Self, TrainError> {
        let file = path.join(CONFIG_FILE);
        let exists = || TrainError::RunExists {
            path: path.to_owned(),
        };
        if file.exists() {
            return Err(exists());
        }
        if let Some((_, what)) = OTHERS.iter().find(|(name, _)| path.join(name).exists()) {
            let path = path.to_owned();
            return Err(TrainError::NotForRun { path, what });
        }
        for folder in [checkpoint::FOLDER, SAMPLES] {
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
        let directory = File::open(path).map_err(TrainError::file("open", path))?;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&file)
            .map_err(TrainError::file("create", &file))?;
        let taken = || TrainError::RunLocked {
            path: path.to_owned(),
            process: read::read_text(&file, 64).unwrap_or_default(),
        };
        let directory = LockedFile::lock(directory).ok_or_else(taken)?;
        let mut lock = LockedFile::lock(lock).ok_or_else(taken)?;
        let number = std::process::id().to_string();
        // Only for people to read.
        let _ = lock
            .file
            .set_len(0)
            .and_then(|()| lock.file.write_all(number.as_bytes()));
        Ok(Self {
            path: path.to_owned(),
            directory,
            lock,
        })
    }

    /// Checks that the run's directory is still the one that this process has locked.
    ///
    /// # Errors
    /// It was removed, renamed or replaced; or its lock file was, on a file system that cannot lock a directory.
    pub fn check(&self) -> Result<(), TrainError> {
        if !self.directory.is_at(&self.path) {
            return Err(TrainError::RunReplaced {
                path: self.path.clone(),
            });
        }
        let lock = self.path.join(LOCK_FILE);
        match self.directory.locked || self.lock.is_at(&lock) {
            true => Ok(()),
            false => Err(TrainError::LockReplaced { path: lock }),
        }
    }

    /// Returns true if a process holds a run's directory.
    pub fn is_held(path: &Path) -> bool {
        is_locked(path) || is_locked(&path.join(LOCK_FILE))
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
    write::write_whole(path, content).map_err(TrainError::file("write", path))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_removed_lock_file_lets_nobody_in() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let held = RunFolder::create(&run, "").unwrap();
        fs::remove_file(run.join(LOCK_FILE)).unwrap();
        assert!(RunFolder::is_held(&run));
        let second = RunFolder::open(&run).map(drop);
        assert!(matches!(second, Err(TrainError::RunLocked { .. })));
        held.check().unwrap();
        drop(held);
        assert!(!RunFolder::is_held(&run));
        RunFolder::open(&run).unwrap().check().unwrap();
    }

    #[test]
    fn a_directory_that_was_replaced_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let [run, other] = ["run", "other"].map(|name| folder.path().join(name));
        let held = RunFolder::create(&run, "").unwrap();
        fs::rename(&run, &other).unwrap();
        let gone = |held: &RunFolder| matches!(held.check(), Err(TrainError::RunReplaced { .. }));
        assert!(gone(&held));
        fs::create_dir(&run).unwrap();
        assert!(gone(&held));
        fs::remove_dir(&run).unwrap();
        fs::rename(&other, &run).unwrap();
        held.check().unwrap();
    }

    #[test]
    fn without_a_lock_on_the_directory_the_lock_file_must_stay() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let mut held = RunFolder::create(&run, "").unwrap();
        held.directory.locked = false;
        held.check().unwrap();
        fs::remove_file(run.join(LOCK_FILE)).unwrap();
        assert!(matches!(held.check(), Err(TrainError::LockReplaced { .. })));
    }
}
