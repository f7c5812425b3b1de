//! A memory-mapped file whose blocks are verified when they are first read.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use mmap_io::{MemoryMappedFile, MmapIoError};

use super::blocks::{BLOCK_BYTES, BlockHashes};
use crate::DataError;

/// A memory-mapped file with the hashes to verify it.
pub(super) struct VerifiedMap {
    path: PathBuf,
    map: MemoryMappedFile,
    check: Check,
}

enum Check {
    /// No hashes are known.
    None,
    /// The hash of the whole file, which has several blocks.
    UnverifiedFile(blake3::Hash),
    /// The hash of a file of at most one block.
    OneBlock(blake3::Hash, Verified),
    /// The hash of each block.
    Blocks(BlockHashes, Verified),
}

/// The blocks verified so far. If two threads first read a block at the same time, both hash it.
struct Verified(Box<[AtomicBool]>);

/// A file without block hashes, which can only be verified as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnverifiedFile {
    /// The path of the file.
    pub(crate) path: PathBuf,
    /// The length in bytes.
    pub(crate) bytes: u64,
    /// The expected BLAKE3.
    pub(crate) blake3: blake3::Hash,
}

impl VerifiedMap {
    /// Memory-maps the file `path` without verification.
    pub(super) fn open(path: &Path) -> Result<Self, DataError> {
        let map = MemoryMappedFile::open_ro(path).map_err(|error| map_error(path, error))?;
        Ok(Self {
            path: path.to_owned(),
            map,
            check: Check::None,
        })
    }

    /// Enables verification of each block when it is first read. `blake3` is the hash of the whole file in
    /// hexadecimal. Without `blocks`, a file of more than one block is not verified here.
    pub(super) fn verify_by(
        &mut self,
        blake3: &str,
        blocks: Option<BlockHashes>,
    ) -> Result<(), DataError> {
        let damaged = |reason: String| DataError::Shard {
            path: self.path.clone(),
            reason,
        };
        let whole = blake3::Hash::from_hex(blake3)
            .map_err(|_| damaged(format!("the manifest's `blake3` is {blake3:?}")))?;
        let bytes = self.map.len();
        let verified = || {
            let count = usize::try_from(bytes.div_ceil(BLOCK_BYTES)).unwrap_or(0);
            Verified((0..count).map(|_| AtomicBool::new(false)).collect())
        };
        self.check = match blocks {
            _ if bytes <= BLOCK_BYTES => Check::OneBlock(whole, verified()),
            None => Check::UnverifiedFile(whole),
            Some(blocks) if blocks.belong_to(bytes, &whole) => Check::Blocks(blocks, verified()),
            Some(_) => {
                let path = self.path.clone();
                return Err(DataError::OtherBlockHashes { path });
            }
        };
        Ok(())
    }

    /// The file, if the reader has to verify it as a whole.
    pub(super) fn unverified_file(&self) -> Option<UnverifiedFile> {
        match self.check {
            Check::UnverifiedFile(blake3) => Some(UnverifiedFile {
                path: self.path.clone(),
                bytes: self.map.len(),
                blake3,
            }),
            _ => None,
        }
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The length of the file in bytes.
    pub(super) fn len(&self) -> u64 {
        self.map.len()
    }

    /// Returns `len` bytes from `start`, after verifying the blocks that contain them.
    pub(super) fn bytes(&self, start: u64, len: u64) -> Result<&[u8], DataError> {
        match &self.check {
            Check::None | Check::UnverifiedFile(_) => {}
            Check::OneBlock(whole, verified) => {
                let matches = |_, block: &[u8]| blake3::hash(block) == *whole;
                self.verify(verified, start, len, matches)?;
            }
            Check::Blocks(blocks, verified) => {
                self.verify(verified, start, len, |index, block| {
                    blocks.matches(index, block)
                })?;
            }
        }
        self.unverified(start, len)
    }

    /// Returns `len` bytes from `start` without verification.
    pub(super) fn unverified(&self, start: u64, len: u64) -> Result<&[u8], DataError> {
        let bytes = self.map.as_slice_bytes(start, len);
        bytes.map_err(|error| map_error(&self.path, error))
    }

    /// Verifies the blocks that contain `len` bytes from `start`, except those verified before.
    fn verify(
        &self,
        verified: &Verified,
        start: u64,
        len: u64,
        matches: impl Fn(u64, &[u8]) -> bool,
    ) -> Result<(), DataError> {
        let blocks = start / BLOCK_BYTES..start.saturating_add(len).div_ceil(BLOCK_BYTES);
        for index in blocks {
            let Some(seen) = usize::try_from(index)
                .ok()
                .and_then(|at| verified.0.get(at))
            else {
                break;
            };
            if seen.load(Ordering::Relaxed) {
                continue;
            }
            let first = index * BLOCK_BYTES;
            let end = self.map.len().min(first + BLOCK_BYTES);
            if !matches(index, self.unverified(first, end - first)?) {
                return Err(DataError::DamagedBlock {
                    path: self.path.clone(),
                    start: first,
                    end,
                });
            }
            seen.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn map_error(path: &Path, error: MmapIoError) -> DataError {
    let path = path.to_owned();
    match error {
        MmapIoError::Io(source) => DataError::Io {
            action: "read",
            path,
            source,
        },
        other => DataError::Shard {
            path,
            reason: other.to_string(),
        },
    }
}
