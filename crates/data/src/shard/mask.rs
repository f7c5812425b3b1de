//! The mask of a shard: a file with one byte per token, which marks targets and, if the mask indexes documents, the
//! first token of each document.

use std::path::Path;

use super::HashedFile;
use super::blocks::{BlockHashes, FileHashes};
use super::verified_map::{UnverifiedFile, VerifiedMap};
use crate::DataError;

/// The bit of a target.
pub(crate) const LEARNT: u8 = 1;

/// The bit of a token that begins a document.
pub(crate) const BEGINS: u8 = 2;

/// The largest valid byte of a mask, and a description of the valid bytes.
fn largest(indexes_documents: bool) -> (u8, &'static str) {
    match indexes_documents {
        true => (LEARNT | BEGINS, "only 0 to 3 are allowed"),
        false => (LEARNT, "only 0 and 1 are allowed"),
    }
}

/// A memory-mapped mask with a verified length.
pub struct Mask {
    file: VerifiedMap,
    indexes_documents: bool,
}

impl Mask {
    /// Opens the mask `path` of a shard of `tokens` tokens.
    ///
    /// # Errors
    /// Fails if the file cannot be opened or does not have one byte per token.
    pub fn open(path: &Path, tokens: u64) -> Result<Self, DataError> {
        let file = VerifiedMap::open(path)?;
        if file.len() != tokens {
            return Err(DataError::Shard {
                path: path.to_owned(),
                reason: format!("{} bytes, but its shard has {tokens} tokens", file.len()),
            });
        }
        Ok(Self {
            file,
            indexes_documents: false,
        })
    }

    /// Sets whether the mask also indexes documents.
    #[must_use]
    pub(crate) fn indexing(mut self, indexes_documents: bool) -> Self {
        self.indexes_documents = indexes_documents;
        self
    }

    /// Returns true if the mask indexes documents.
    pub fn indexes_documents(&self) -> bool {
        self.indexes_documents
    }

    /// Enables verification of each block when it is first read, as far as its hash is known.
    pub(crate) fn verified_by(
        mut self,
        blake3: &str,
        blocks: Option<BlockHashes>,
    ) -> Result<Self, DataError> {
        self.file.verify_by(blake3, blocks)?;
        Ok(self)
    }

    /// The file, if its blocks cannot be verified one by one.
    pub(crate) fn unverified_file(&self) -> Option<UnverifiedFile> {
        self.file.unverified_file()
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Appends for each of `len` tokens from `start` whether it is a target.
    ///
    /// # Errors
    /// Fails if there are fewer tokens, if the bytes have changed since they were written, or if a byte is out of
    /// range.
    pub fn read_into(&self, start: u64, len: u64, out: &mut Vec<bool>) -> Result<(), DataError> {
        self.bits_into(LEARNT, start, len, out)
    }

    /// Appends for each of `len` tokens from `start` whether it begins a document.
    ///
    /// # Errors
    /// As [`Mask::read_into`].
    pub(crate) fn beginnings_into(
        &self,
        start: u64,
        len: u64,
        out: &mut Vec<bool>,
    ) -> Result<(), DataError> {
        self.bits_into(BEGINS, start, len, out)
    }

    fn bits_into(
        &self,
        bit: u8,
        start: u64,
        len: u64,
        out: &mut Vec<bool>,
    ) -> Result<(), DataError> {
        let total = self.file.len();
        if start.checked_add(len).is_none_or(|end| end > total) {
            return Err(DataError::OutOfBounds { start, len, total });
        }
        let bytes = self.file.bytes(start, len)?;
        let (largest, rule) = largest(self.indexes_documents);
        if let Some(at) = bytes.iter().position(|&byte| byte > largest) {
            let reason = format!("byte {} at {}: {rule}", bytes[at], start + at as u64);
            let path = self.path().to_owned();
            return Err(DataError::Shard { path, reason });
        }
        out.extend(bytes.iter().map(|&byte| byte & bit != 0));
        Ok(())
    }
}

/// The results of a pass over a whole mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MaskSums {
    /// The number of bytes, one per token.
    pub(crate) bytes: u64,
    /// The number of targets.
    pub(crate) learnt: u64,
    /// The number of tokens that begin a document.
    pub(crate) documents: u64,
    /// The first byte that is out of range: its position, its value and the rule.
    pub(crate) wrong: Option<(u64, u8, &'static str)>,
    /// The hashes of the file and its blocks.
    pub(crate) hashes: FileHashes,
}

/// Reads the mask `path` and sums it up. `progress` receives the number of bytes read since the last call.
pub(crate) fn sum_mask(
    path: &Path,
    indexes_documents: bool,
    progress: &dyn Fn(u64),
) -> Result<MaskSums, DataError> {
    let mut file = HashedFile::open(path)?;
    let (mut at, mut learnt, mut documents, mut wrong) = (0, 0, 0, None);
    let (largest, rule) = largest(indexes_documents);
    loop {
        let bytes = file.next(u64::MAX)?;
        if bytes.is_empty() {
            break;
        }
        let marked = |bit: u8, byte: u8| byte <= largest && byte & bit != 0;
        let count = |bit: u8| bytes.iter().filter(|&&byte| marked(bit, byte)).count() as u64;
        learnt += count(LEARNT);
        documents += count(BEGINS);
        let found = bytes.iter().position(|&byte| byte > largest);
        wrong = wrong.or(found.map(|i| (at + i as u64, bytes[i], rule)));
        at += bytes.len() as u64;
        progress(bytes.len() as u64);
    }
    Ok(MaskSums {
        bytes: at,
        learnt,
        documents,
        wrong,
        hashes: file.hashes(),
    })
}
