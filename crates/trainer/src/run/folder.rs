//! A run's directory, locked by one process at a time.

use std::fs::{self, File, Metadata, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use emberlm_system::{read, write};

use crate::checkpoint;
use crate::error::TrainError;
use crate::objective::preference::REFERENCE_FILE;
use crate::report::events::EVENTS_FILE;

/// The file with the run's configuration.
pub const CONFIG_FILE: &str = "config.toml";
/// The lock file. It is held by the process that trains the run and contains its process ID.
pub const LOCK_FILE: &str = "lock";
/// The file in the directory of a forked run.
pub(crate) const ANCESTRY_FILE: &str = "ancestry.json";
/// The folder of the generated samples.
pub(crate) const SAMPLES: &str = "samples";

/// Files and folders of a run that training writes.
const WRITTEN: [&str; 7] = [
    CONFIG_FILE,
    LOCK_FILE,
    EVENTS_FILE,
    ANCESTRY_FILE,
    REFERENCE_FILE,
    checkpoint::FOLDER,
    SAMPLES,
];

/// Files that identify directories other than runs, and the kind of each directory.
const OTHER_DIRECTORIES: [(&str, &str); 3] = [
    ("dataset.json", "a dataset"),
    ("config.json", "a model"),
    ("model.json", "a checkpoint"),
];

/// A run's directory, locked so that only this process writes to it. The system releases the lock when the
/// process exits for any reason.
///
/// The directory itself is locked, so removing the lock file does not admit another process. The lock file is
/// locked as well, for file systems that cannot lock a directory.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    directory: LockedFile,
    lock: LockedFile,
}

/// An open file or directory, locked if the file system supports it.
#[derive(Debug)]
struct LockedFile {
    file: File,
    locked: bool,
}

impl LockedFile {
    /// Locks the file. `None` if another process holds the lock.
    fn lock(file: File) -> Option<Self> {
        // A process that only tests the lock holds it for a moment, so retry.
        for _ in 0..LOCK_ATTEMPTS {
            match file.try_lock() {
                Ok(()) => return Some(Self { file, locked: true }),
                Err(TryLockError::WouldBlock) => std::thread::sleep(RETRY_INTERVAL),
                // The file system does not support locks. Exclusion is then up to the user.
                Err(TryLockError::Error(_)) => {
                    let locked = false;
                    return Some(Self { file, locked });
                }
            }
        }
        None
    }

    /// Returns true if `path` still refers to this file.
    fn is_at(&self, path: &Path) -> bool {
        match (self.file.metadata(), fs::metadata(path)) {
            (Ok(held), Ok(found)) => identity(&held) == identity(&found),
            _ => false,
        }
    }
}

/// The number of attempts to lock.
const LOCK_ATTEMPTS: usize = 5;
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

#[cfg(unix)]
fn identity(metadata: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;

    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn identity(metadata: &Metadata) -> Option<std::time::SystemTime> {
    metadata.created().ok()
}

/// Returns true if another process has locked the file or directory.
fn is_locked(path: &Path) -> bool {
    let file = File::open(path);
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

impl RunFolder {
    /// Creates the directory of a new run.
    ///
    /// # Errors
    /// It cannot be created, already holds a run, a dataset or a model, or is locked by another process.
    pub fn create(path: &Path, config: &str) -> Result<Self, TrainError> {
        Self::create_with(path, config, |_| Ok(()))
    }

    /// [`RunFolder::create`] with other files, which `write` writes before the configuration makes the directory a run.
    pub(crate) fn create_with(
        path: &Path,
        config: &str,
        write: impl FnOnce(&Path) -> Result<(), TrainError>,
    ) -> Result<Self, TrainError> {
        let file = path.join(CONFIG_FILE);
        let exists = || TrainError::RunExists {
            path: path.to_owned(),
        };
        if file.exists() {
            return Err(exists());
        }
        if let Some((_, what)) = OTHER_DIRECTORIES
            .iter()
            .find(|(name, _)| path.join(name).exists())
        {
            let path = path.to_owned();
            return Err(TrainError::NotForRun { path, what });
        }
        check_links(path)?;
        let target = write::target(path).map_err(TrainError::file("create", path))?;
        fs::create_dir_all(&target).map_err(TrainError::file("create", path))?;
        for folder in [checkpoint::FOLDER, SAMPLES] {
            let folder = path.join(folder);
            fs::create_dir_all(&folder).map_err(TrainError::file("create", &folder))?;
        }
        let folder = Self::lock(path)?;
        // Another process may have created the run in the meantime.
        if file.exists() {
            return Err(exists());
        }
        write(path)?;
        folder.write_config(config)?;
        Ok(folder)
    }

    /// Opens the directory of an existing run.
    ///
    /// # Errors
    /// It holds no run, or is locked by another process.
    pub fn open(path: &Path) -> Result<Self, TrainError> {
        if !path.join(CONFIG_FILE).exists() {
            return Err(TrainError::NoRun {
                path: path.to_owned(),
            });
        }
        check_links(path)?;
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
        // The process ID is for display only, so errors are ignored.
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

    /// Checks that the path still refers to the directory that this process has locked.
    ///
    /// # Errors
    /// It was removed, renamed or replaced; or its lock file was, on a file system that cannot lock a
    /// directory.
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

    /// Writes the run's configuration atomically.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_config(&self, config: &str) -> Result<(), TrainError> {
        write_whole(&self.path.join(CONFIG_FILE), config.as_bytes())
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Checks that a run has no symbolic link in place of a file or folder that training writes: what it points to would be
/// overwritten, and checkpoints of another run removed. The run's directory itself may be a link.
///
/// # Errors
/// There is one.
fn check_links(run: &Path) -> Result<(), TrainError> {
    let samples = run.join(SAMPLES);
    for name in WRITTEN {
        check_no_link(&run.join(name))?;
    }
    for sample in fs::read_dir(samples).into_iter().flatten().flatten() {
        check_no_link(&sample.path())?;
    }
    Ok(())
}

/// Checks that a file or folder of a run, which may be absent, is no symbolic link.
///
/// # Errors
/// It is one.
pub fn check_no_link(path: &Path) -> Result<(), TrainError> {
    match path.is_symlink() {
        true => Err(TrainError::RunLink {
            path: path.to_owned(),
        }),
        false => Ok(()),
    }
}

/// Writes a file atomically: writes a temporary file next to it, syncs it and renames it.
///
/// # Errors
/// The file cannot be written.
pub fn write_whole(path: &Path, content: &[u8]) -> Result<(), TrainError> {
    write::write_whole(path, content).map_err(TrainError::file("write", path))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn removing_the_lock_file_does_not_unlock_a_run() {
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
    fn a_replaced_directory_is_detected() {
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
    fn without_a_directory_lock_the_lock_file_must_exist() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let mut held = RunFolder::create(&run, "").unwrap();
        held.directory.locked = false;
        held.check().unwrap();
        fs::remove_file(run.join(LOCK_FILE)).unwrap();
        assert!(matches!(held.check(), Err(TrainError::LockReplaced { .. })));
    }
}
