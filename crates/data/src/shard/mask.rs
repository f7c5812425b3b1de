//! The mask of a shard: a file of one byte per token, which marks the tokens to be learnt and, in masks that index
//! documents, those that a document begins with.

use std::path::Path;

use super::HashedFile;
use super::blocks::{BlockHashes, FileHashes};
use super::verified_map::{VerifiedMap, WholeFile};
use crate::DataError;

/// The bit of a token that is to be learnt.
pub(crate) const LEARNT: u8 = 1;

/// The bit of a token that a document begins with.
pub(crate) const BEGINS: u8 = 2;

/// Returns the largest byte of a mask, and the rule for its bytes.
fn largest(indexes_documents: bool) -> (u8, &'static str) {
    match indexes_documents {
        true => (LEARNT | BEGINS, "only 0 to 3 are allowed"),
        false => (LEARNT, "only 0 and 1 are allowed"),
    }
}

/// A memory-mapped mask, whose length has been checked.
pub struct Mask {
    file: VerifiedMap,
    indexes_documents: bool,
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
        Ok(Self {
            file,
            indexes_documents: false,
        })
    }

    /// The same mask, which also marks the tokens that documents begin with if `indexes_documents` is true.
    #[must_use]
    pub(crate) fn indexing(mut self, indexes_documents: bool) -> Self {
        self.indexes_documents = indexes_documents;
        self
    }

    /// Returns true if the mask marks the tokens that documents begin with.
    pub fn indexes_documents(&self) -> bool {
        self.indexes_documents
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

    /// The file, if its block hashes are unknown.
    pub(crate) fn whole_file(&self) -> Option<WholeFile> {
        self.file.whole_file()
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Appends whether each of `len` tokens from `start` on is to be learnt.
    ///
    /// # Errors
    /// Where there are not as many, where they are not the bytes that were written, or where one is out of range.
    pub fn read_into(&self, start: u64, len: u64, out: &mut Vec<bool>) -> Result<(), DataError> {
        self.bits_into(LEARNT, start, len, out)
    }

    /// Appends whether a document begins with each of `len` tokens from `start` on.
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

/// The findings of a pass over a whole mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MaskSums {
    /// One byte for each token.
    pub(crate) bytes: u64,
    /// The number of tokens that are to be learnt.
    pub(crate) learnt: u64,
    /// The number of tokens that begin a document.
    pub(crate) documents: u64,
    /// The first byte that is out of range: its place, the byte and the rule.
    pub(crate) wrong: Option<(u64, u8, &'static str)>,
    /// The hashes of the file and its blocks.
    pub(crate) hashes: FileHashes,
}

/// Reads the mask `path`; `progress` receives how many more bytes have been read.
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
