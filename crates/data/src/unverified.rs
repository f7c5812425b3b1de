//! Files without block hashes, which can only be verified as a whole.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::shard::UnverifiedFile;
use crate::{DataError, TokenSplit};

/// The number of bytes per read.
const READ_BYTES: usize = 1 << 20;

/// The files of some splits that have no block hashes, so that their blocks cannot be verified when they are read.
/// Earlier versions wrote datasets without block hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnverifiedFiles {
    files: Vec<UnverifiedFile>,
}

impl UnverifiedFiles {
    /// The unverified files of `splits`.
    pub fn of<'a>(splits: impl IntoIterator<Item = &'a TokenSplit>) -> Self {
        let mut files: Vec<UnverifiedFile> = splits
            .into_iter()
            .flat_map(TokenSplit::unverified_files)
            .collect();
        files.sort_by(|one, two| one.path.cmp(&two.path));
        files.dedup();
        Self { files }
    }

    /// The number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns true if all files have block hashes.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The total size of the files in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Reads every file on the calling thread and compares its BLAKE3 with the manifest. Adds the number of bytes
    /// read to `done`, and returns early once `stop` is set.
    ///
    /// # Errors
    /// [`DataError::DamagedBlock`] for the first file with a different hash. Fails if a file cannot be read.
    pub fn verify(&self, stop: &AtomicBool, done: &AtomicU64) -> Result<(), DataError> {
        let mut buffer = vec![0; READ_BYTES];
        for UnverifiedFile {
            path,
            bytes,
            blake3,
        } in &self.files
        {
            let mut file = File::open(path).map_err(DataError::io("read", path))?;
            let mut hasher = blake3::Hasher::new();
            while !stop.load(Ordering::Relaxed) {
                let read = match file.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(read) => read,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) => return Err(DataError::io("read", path)(error)),
                };
                hasher.update(&buffer[..read]);
                done.fetch_add(read as u64, Ordering::Relaxed);
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
            if hasher.finalize() != *blake3 {
                return Err(DataError::DamagedBlock {
                    path: path.clone(),
                    start: 0,
                    end: *bytes,
                });
            }
        }
        Ok(())
    }
}
