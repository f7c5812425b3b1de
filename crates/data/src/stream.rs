//! A split read from its beginning to its end, once, with all that is read proved on the way.

use crate::shard::ShardStream;
use crate::{DataError, Dataset, Split};

impl Dataset {
    /// Calls `take` with all tokens of `split` in their order, a block at a time; `progress` is told how many bytes more
    /// have been read.
    ///
    /// # Errors
    /// As [`Dataset::split`]; where an id is outside the vocabulary; where a shard's hash is not the manifest's, which is
    /// known after its last token; and what `take` says.
    pub(crate) fn each_block(
        &self,
        split: Split,
        progress: &dyn Fn(u64),
        mut take: impl FnMut(&[u32]) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let vocab_size = self.tokenizer().vocab_size();
        for entry in &self.manifest().split(split).shards {
            let path = self.folder().join(&entry.file);
            let mut stream = ShardStream::open(&path, entry.layout)?;
            let damaged = |reason| DataError::Shard {
                path: path.clone(),
                reason,
            };
            let (found, told) = (stream.len(), entry.tokens);
            if found != told {
                return Err(damaged(format!(
                    "{found} tokens, but the manifest says {told}"
                )));
            }
            let width = stream.width().bytes();
            let mut read = 0;
            loop {
                let ids = stream.next()?;
                if ids.is_empty() {
                    break;
                }
                if let Some(at) = ids.iter().position(|&id| id as usize >= vocab_size) {
                    return Err(DataError::TokenOutOfRange {
                        path,
                        position: read + at as u64,
                        id: ids[at],
                        vocab_size,
                    });
                }
                take(ids)?;
                read += ids.len() as u64;
                progress(ids.len() as u64 * width);
            }
            let (found, told) = (stream.hashes().blake3, &entry.blake3);
            if found != *told {
                return Err(damaged(format!(
                    "its BLAKE3 is {found}, but the manifest says {told}"
                )));
            }
        }
        Ok(())
    }
}
