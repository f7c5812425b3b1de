//! A sequential, fully verified pass over a split.

use crate::shard::ShardStream;
use crate::{DataError, Dataset, Split};

impl Dataset {
    /// Calls `take` with all tokens of `split` in order, one block at a time. `progress` receives the number of bytes
    /// read since the last call.
    ///
    /// # Errors
    /// As [`Dataset::split`]. Fails if an id is outside the vocabulary, or if a shard's hash differs from the
    /// manifest, which is detected after its last token. Returns any error of `take`.
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
            let (found, expected) = (stream.len(), entry.tokens);
            if found != expected {
                return Err(damaged(format!(
                    "{found} tokens, but the manifest says {expected}"
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
            let (found, expected) = (stream.hashes().blake3, &entry.blake3);
            if found != *expected {
                return Err(damaged(format!(
                    "its BLAKE3 is {found}, but the manifest says {expected}"
                )));
            }
        }
        Ok(())
    }
}
