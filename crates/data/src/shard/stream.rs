//! Sequential reading of a shard.

use std::path::Path;

use super::{
    FileHashes, HEADER_BYTES, HashedFile, ShardLayout, TokenRegion, TokenWidth, decode,
    locate_tokens,
};
use crate::DataError;

/// Reads a shard's tokens in blocks, and computes the hashes of the file. Holds at most one block.
pub(crate) struct ShardStream {
    file: HashedFile,
    region: TokenRegion,
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
        match locate_tokens(layout, head, bytes) {
            Ok(region) => Ok(Self {
                file,
                region,
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
        self.region.tokens
    }

    /// The width of a token.
    pub(crate) fn width(&self) -> TokenWidth {
        self.region.width
    }

    /// Returns the next tokens, or an empty slice at the end.
    pub(crate) fn next(&mut self) -> Result<&[u32], DataError> {
        self.ids.clear();
        // Blocks start after the header and their length is a multiple of every width, so no token is split between
        // two blocks.
        let bytes = self.file.next(u64::MAX)?;
        decode(self.region.width, bytes, &mut self.ids);
        Ok(&self.ids)
    }

    /// The hashes of the file. Complete after the last token.
    pub(crate) fn hashes(&self) -> FileHashes {
        self.file.hashes()
    }
}
