//! A memory-mapped file whose blocks are verified when they are first read.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use mmap_io::{MemoryMappedFile, MmapIoError};

use super::blocks::{BLOCK_BYTES, BlockHashes};
use crate::DataError;

/// A memory-mapped file, and what its bytes are checked against.
pub(super) struct VerifiedMap {
    path: PathBuf,
    map: MemoryMappedFile,
    check: Check,
}

enum Check {
    /// Nothing is known of the file.
    None,
    /// The hash of the whole file, which has more than one block.
    WholeFile(blake3::Hash),
    /// The hash of a file of at most one block.
    OneBlock(blake3::Hash, Verified),
    /// The hash of each block.
    Blocks(BlockHashes, Verified),
}

/// Which blocks have been verified. A block that two threads read first at the same time is hashed by both.
struct Verified(Box<[AtomicBool]>);

/// A file that can only be verified as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WholeFile {
    /// The file.
    pub(crate) path: PathBuf,
    /// Its length.
    pub(crate) bytes: u64,
    /// The BLAKE3 that it must have.
    pub(crate) blake3: blake3::Hash,
}

impl VerifiedMap {
    /// Maps the file `path`, without anything to check it against.
    pub(super) fn open(path: &Path) -> Result<Self, DataError> {
        let map = MemoryMappedFile::open_ro(path).map_err(|error| map_error(path, error))?;
        Ok(Self {
            path: path.to_owned(),
            map,
            check: Check::None,
        })
    }

    /// Has every block verified when it is first read. `blake3` is the whole file's, in hexadecimal; without `blocks`, a
    /// file of more than one block is not verified here.
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
            None => Check::WholeFile(whole),
            Some(blocks) if blocks.belong_to(bytes, &whole) => Check::Blocks(blocks, verified()),
            Some(_) => {
                let path = self.path.clone();
                return Err(DataError::OtherBlockHashes { path });
            }
        };
        Ok(())
    }

    /// The file, where it has to be verified as a whole by whoever reads it.
    pub(super) fn whole_file(&self) -> Option<WholeFile> {
        match self.check {
            Check::WholeFile(blake3) => Some(WholeFile {
                path: self.path.clone(),
                bytes: self.map.len(),
                blake3,
            }),
            _ => None,
        }
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The file's length.
    pub(super) fn len(&self) -> u64 {
        self.map.len()
    }

    /// `len` bytes from `start` on, whose blocks have been verified.
    pub(super) fn bytes(&self, start: u64, len: u64) -> Result<&[u8], DataError> {
        match &self.check {
            Check::None | Check::WholeFile(_) => {}
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

    /// `len` bytes from `start` on, as they are.
    pub(super) fn unverified(&self, start: u64, len: u64) -> Result<&[u8], DataError> {
        let bytes = self.map.as_slice_bytes(start, len);
        bytes.map_err(|error| map_error(&self.path, error))
    }

    /// Verifies the blocks that `len` bytes from `start` on lie in, but for those that have been.
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
