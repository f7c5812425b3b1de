//! A dataset as it is read: memory-mapped tokens behind two splits.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use emberlm_tokenizer::{Tokenizer, TokenizerError};

use crate::{DataError, MANIFEST_FILE, Manifest, Shard, Split};

/// A dataset directory whose manifest has been read and whose tokenizer has been found.
pub struct Dataset {
    folder: PathBuf,
    manifest: Manifest,
    tokenizer: Tokenizer,
}

impl Dataset {
    /// Opens the dataset in `folder`. Its shards are opened by [`Dataset::split`].
    ///
    /// # Errors
    /// Where the manifest cannot be read or used, or where its tokenizer is not one of this program's and not in the
    /// directory either.
    pub fn open(folder: &Path) -> Result<Self, DataError> {
        let manifest = Manifest::read(folder)?;
        let tokenizer = Tokenizer::open(&manifest.tokenizer, folder);
        let tokenizer = tokenizer.map_err(|source| match source {
            // It names the tokenizer's own file.
            TokenizerError::File { .. } => DataError::Tokenizer(source),
            source => DataError::ManifestTokenizer {
                path: folder.join(MANIFEST_FILE),
                source,
            },
        })?;
        Ok(Self {
            folder: folder.to_owned(),
            manifest,
            tokenizer,
        })
    }

    /// The directory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the directory consists of.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The tokenizer whose ids the shards hold.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Opens the shards of one split.
    ///
    /// # Errors
    /// Where a shard is missing, damaged, or has another number of tokens than the manifest says.
    pub fn split(&self, split: Split) -> Result<TokenSplit, DataError> {
        let mut shards = Vec::new();
        for entry in &self.manifest.split(split).shards {
            let shard = Shard::open_as(&self.folder.join(&entry.file), entry.layout)?;
            if shard.len() != entry.tokens {
                return Err(DataError::Shard {
                    path: shard.path().to_owned(),
                    reason: format!(
                        "{} tokens, but the manifest says {}",
                        shard.len(),
                        entry.tokens
                    ),
                });
            }
            shards.push(shard);
        }
        Ok(TokenSplit::new(shards, self.tokenizer.vocab_size()))
    }

    /// How many bytes its files have, as far as they are there.
    pub fn bytes(&self) -> u64 {
        let length = |file| fs::metadata(self.folder.join(file)).map_or(0, |found| found.len());
        self.manifest.files().map(length).sum()
    }

    /// Whether every file is what the manifest says: [`crate::verify()`] in short.
    ///
    /// # Errors
    /// [`DataError::Damaged`] with all that is wrong.
    pub fn verify(&self) -> Result<(), DataError> {
        let problems = crate::verify(self, &|_| {})?.problems();
        match problems.is_empty() {
            true => Ok(()),
            false => Err(DataError::Damaged {
                folder: self.folder.clone(),
                problems,
            }),
        }
    }
}

/// The tokens of one split: memory-mapped shards read as one sequence. Cheap to clone and to share between threads.
#[derive(Clone)]
pub struct TokenSplit {
    inner: Arc<Inner>,
}

struct Inner {
    shards: Vec<Shard>,
    /// Where each shard begins in the sequence, and at last where the sequence ends.
    starts: Vec<u64>,
    vocab_size: usize,
}

impl TokenSplit {
    /// The sequence of `shards`, whose ids must be below `vocab_size`: each is checked when it is read.
    pub fn new(shards: Vec<Shard>, vocab_size: usize) -> Self {
        let mut starts = vec![0];
        let mut end = 0;
        for shard in &shards {
            end += shard.len();
            starts.push(end);
        }
        let inner = Arc::new(Inner {
            shards,
            starts,
            vocab_size,
        });
        Self { inner }
    }

    /// How many tokens there are.
    pub fn len(&self) -> u64 {
        self.inner.starts.last().copied().unwrap_or(0)
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The size of the vocabulary that every id read is below.
    pub fn vocab_size(&self) -> usize {
        self.inner.vocab_size
    }

    /// The `len` tokens from `start` on, across the borders of shards.
    ///
    /// # Errors
    /// [`DataError::OutOfBounds`] where there are not as many; [`DataError::TokenOutOfRange`] where an id among them is
    /// outside the vocabulary.
    pub fn read(&self, start: u64, len: u64) -> Result<Vec<u32>, DataError> {
        let total = self.len();
        let Some(end) = start.checked_add(len).filter(|&end| end <= total) else {
            return Err(DataError::OutOfBounds { start, len, total });
        };
        let mut ids = Vec::with_capacity(len as usize);
        let Inner { shards, starts, .. } = &*self.inner;
        // The last shard that begins at or before `start`.
        let mut at = starts
            .partition_point(|&begin| begin <= start)
            .saturating_sub(1);
        let mut position = start;
        while position < end {
            let stop = end.min(starts[at + 1]);
            let (from, first) = (position - starts[at], ids.len());
            shards[at].read_into(from, stop - position, &mut ids)?;
            self.check(&shards[at], from, &ids[first..])?;
            position = stop;
            at += 1;
        }
        Ok(ids)
    }

    fn check(&self, shard: &Shard, from: u64, ids: &[u32]) -> Result<(), DataError> {
        let vocab_size = self.inner.vocab_size;
        match ids.iter().position(|&id| id as usize >= vocab_size) {
            None => Ok(()),
            Some(at) => Err(DataError::TokenOutOfRange {
                path: shard.path().to_owned(),
                position: from + at as u64,
                id: ids[at],
                vocab_size,
            }),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{ShardWriter, TokenWidth};

    /// A split over `ids`, in shards of the given lengths.
    pub(crate) fn split_of(ids: &[u32], lengths: &[usize], vocab_size: usize) -> TokenSplit {
        let folder = tempfile::tempdir().unwrap();
        let mut rest = ids;
        let mut shards = Vec::new();
        for (i, &len) in lengths.iter().enumerate() {
            let path = folder.path().join(format!("{i}.bin"));
            let mut writer = ShardWriter::create(&path, TokenWidth::for_vocab(vocab_size)).unwrap();
            let (head, tail) = rest.split_at(len);
            writer.write(head).unwrap();
            writer.finish().unwrap();
            shards.push(Shard::open(&path).unwrap());
            rest = tail;
        }
        assert!(rest.is_empty());
        TokenSplit::new(shards, vocab_size)
    }

    #[test]
    fn reads_cross_shards() {
        let ids: Vec<u32> = (0..20).collect();
        let split = split_of(&ids, &[5, 0, 1, 14], 20);
        assert_eq!(split.len(), 20);
        for start in 0..=20 {
            for len in 0..=20 - start {
                let expected = &ids[start..start + len];
                assert_eq!(split.read(start as u64, len as u64).unwrap(), expected);
            }
        }
    }

    #[test]
    fn a_read_beyond_the_end_is_an_error() {
        let split = split_of(&[1, 2, 3], &[3], 4);
        let message = split.read(2, 2).unwrap_err().to_string();
        assert_eq!(message, "tokens 2 to 4 were asked for, but the split has 3");
        assert!(split.read(u64::MAX, u64::MAX).is_err());
        assert!(split_of(&[], &[], 4).read(0, 1).is_err());
    }

    #[test]
    fn an_id_outside_the_vocabulary_is_an_error_with_shard_and_position() {
        let split = split_of(&[0, 1, 2, 9, 3], &[2, 3], 5);
        assert_eq!(split.read(0, 3).unwrap(), [0, 1, 2]);
        let message = split.read(1, 4).unwrap_err().to_string();
        assert!(
            message.ends_with("1.bin: token 9 at position 1 is outside the vocabulary of 5"),
            "{message}"
        );
    }

    #[test]
    fn a_folder_without_manifest_is_no_dataset() {
        let folder = tempfile::tempdir().unwrap();
        let message = Dataset::open(folder.path()).err().unwrap().to_string();
        assert!(message.contains("dataset.json"), "{message}");
        fs::write(folder.path().join(MANIFEST_FILE), "{").unwrap();
        assert!(Dataset::open(folder.path()).is_err());
    }
}
