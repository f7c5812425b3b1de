//! Which tokens of a shard are to be learnt: a file of one byte per token, beside the shard.

use std::path::Path;

use super::HashedFile;
use super::blocks::{BlockHashes, FileHashes};
use super::verified_map::{VerifiedMap, WholeFile};
use crate::DataError;

/// The byte of a token that is to be learnt; 0 is that of one that is only read.
pub(crate) const LEARNT: u8 = 1;

/// A memory-mapped mask, whose length has been checked.
pub struct Mask {
    file: VerifiedMap,
}

impl Mask {
    /// Opens the mask `path` of a shard of `tokens` tokens.
    ///
    /// # Errors
    /// Fails if it cannot be opened, or has not one byte per token.
    pub fn open(path: &Path, tokens: u64) -> Result<Self, DataError> {
        let file = VerifiedMap::open(path)?;
        if file.len() != tokens {
            return Err(DataError::Shard {
                path: path.to_owned(),
                reason: format!("{} bytes, but its shard has {tokens} tokens", file.len()),
            });
        }
        Ok(Self { file })
    }

    /// Verifies every block when it is first read, if its hash is known.
    pub(crate) fn verified_by(
        mut self,
        blake3: &str,
        blocks: Option<BlockHashes>,
    ) -> Result<Self, DataError> {
        self.file.verify_by(blake3, blocks)?;
        Ok(self)
    }

    /// The file, where its blocks' hashes are not known.
    pub(crate) fn whole_file(&self) -> Option<WholeFile> {
        self.file.whole_file()
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Appends to `out`, for each of the `len` tokens from `start` on, whether it is a target.
    ///
    /// # Errors
    /// Fails if there are not as many, if they are not the bytes that were written, or if one is neither 0 nor 1.
    pub fn read_into(&self, start: u64, len: u64, out: &mut Vec<bool>) -> Result<(), DataError> {
        let total = self.file.len();
        if start.checked_add(len).is_none_or(|end| end > total) {
            return Err(DataError::OutOfBounds { start, len, total });
        }
        let bytes = self.file.bytes(start, len)?;
        if let Some(at) = bytes.iter().position(|&byte| byte > LEARNT) {
            let reason = format!(
                "byte {} at {}: only 0 and 1 are allowed",
                bytes[at],
                start + at as u64
            );
            let path = self.path().to_owned();
            return Err(DataError::Shard { path, reason });
        }
        out.extend(bytes.iter().map(|&byte| byte == LEARNT));
        Ok(())
    }
}

/// The findings of a pass over a whole mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MaskSums {
    /// One byte for each token.
    pub(crate) bytes: u64,
    /// The number of tokens that are to be learnt.
    pub(crate) learnt: u64,
    /// The first byte that is neither 0 nor 1: where, and which.
    pub(crate) wrong: Option<(u64, u8)>,
    /// The hashes of the file and its blocks.
    pub(crate) hashes: FileHashes,
}

/// Reads the mask `path`; `progress` is told how many bytes more have been read.
pub(crate) fn sum_mask(path: &Path, progress: &dyn Fn(u64)) -> Result<MaskSums, DataError> {
    let mut file = HashedFile::open(path)?;
    let (mut at, mut learnt, mut wrong) = (0, 0, None);
    loop {
        let bytes = file.next(u64::MAX)?;
        if bytes.is_empty() {
            break;
        }
        learnt += bytes.iter().filter(|&&byte| byte == LEARNT).count() as u64;
        let found = bytes.iter().position(|&byte| byte > LEARNT);
        wrong = wrong.or(found.map(|i| (at + i as u64, bytes[i])));
        at += bytes.len() as u64;
        progress(bytes.len() as u64);
    }
    Ok(MaskSums {
        bytes: at,
        learnt,
        wrong,
        hashes: file.hashes(),
    })
}
