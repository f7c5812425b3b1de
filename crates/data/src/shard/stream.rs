//! Sequential reading of a shard.

use std::path::Path;

use super::{FileHashes, HEADER_BYTES, HashedFile, Placed, ShardLayout, TokenWidth, decode, place};
use crate::DataError;

/// Reads a shard's tokens in blocks, and computes the hashes of the file. Holds at most one block.
pub(crate) struct ShardStream {
    file: HashedFile,
    placed: Placed,
    ids: Vec<u32>,
}

impl ShardStream {
    /// Opens the shard `path` with the given layout.
    ///
    /// # Errors
    /// As [`crate::Shard::open_as`].
    pub(crate) fn open(path: &Path, layout: ShardLayout) -> Result<Self, DataError> {
        let mut file = HashedFile::open(path)?;
        let bytes = file.bytes();
        let head = match layout {
            ShardLayout::LlmC => file.next(HEADER_BYTES)?,
            ShardLayout::Headerless => &[],
        };
        match place(layout, head, bytes) {
            Ok(placed) => Ok(Self {
                file,
                placed,
                ids: Vec::new(),
            }),
            Err(reason) => Err(DataError::Shard {
                path: path.to_owned(),
                reason,
            }),
        }
    }

    /// The number of tokens in the shard.
    pub(crate) fn len(&self) -> u64 {
        self.placed.tokens
    }

    /// The width of a token.
    pub(crate) fn width(&self) -> TokenWidth {
        self.placed.width
    }

    /// Returns the next tokens, or an empty slice at the end.
    pub(crate) fn next(&mut self) -> Result<&[u32], DataError> {
        self.ids.clear();
        // Blocks start after the header and their length is a multiple of every width, so no token is split between
        // two blocks.
        let bytes = self.file.next(u64::MAX)?;
        decode(self.placed.width, bytes, &mut self.ids);
        Ok(&self.ids)
    }

    /// The hashes of the file. Complete after the last token.
    pub(crate) fn hashes(&self) -> FileHashes {
        self.file.hashes()
    }
}
