//! A shard read from its beginning to its end.

use std::path::Path;

use super::{FileHashes, HEADER_BYTES, HashedFile, Placed, ShardLayout, TokenWidth, decode, place};
use crate::DataError;

/// Gives a shard's tokens in blocks, and at the end the file's hash; holds no more than a block.
pub(crate) struct ShardStream {
    file: HashedFile,
    placed: Placed,
    ids: Vec<u32>,
}

impl ShardStream {
    /// Begins to read the shard `path`, whose tokens lie as `layout` says.
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

    /// The number of tokens that the shard holds.
    pub(crate) fn len(&self) -> u64 {
        self.placed.tokens
    }

    /// The number of bytes that a token takes in it.
    pub(crate) fn width(&self) -> TokenWidth {
        self.placed.width
    }

    /// The next tokens; none at the end.
    pub(crate) fn next(&mut self) -> Result<&[u32], DataError> {
        self.ids.clear();
        // A block's length is a multiple of every width, so that none cuts a token.
        let bytes = self.file.next(u64::MAX)?;
        decode(self.placed.width, bytes, &mut self.ids);
        Ok(&self.ids)
    }

    /// The hashes of the whole file and its blocks, after the last token.
    pub(crate) fn hashes(&self) -> FileHashes {
        self.file.hashes()
    }
}
