//! Reading a dataset: its manifest, its tokenizer and the memory-mapped tokens of its splits.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use emberlm_tokenizer::{Tokenizer, TokenizerError};

use crate::block_hashes::DatasetBlocks;
use crate::shard::UnverifiedFile;
use crate::{DataError, MANIFEST_FILE, Manifest, Mask, NotADataset, Shard, Split};

/// An open dataset directory with its manifest and tokenizer.
pub struct Dataset {
    folder: PathBuf,
    manifest: Manifest,
    tokenizer: Tokenizer,
}

impl Dataset {
    /// Opens the dataset in `folder`. The shards are opened by [`Dataset::split`].
    ///
    /// # Errors
    /// [`DataError::NotADataset`] if `folder` has no manifest. Fails if the manifest cannot be read or is invalid, or
    /// if the tokenizer is neither built in nor stored in the directory.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, DataError> {
        let folder = folder.as_ref();
        let manifest = Manifest::read(folder).map_err(|error| match error {
            DataError::Io { source, .. } if is_absent(&source) => DataError::NotADataset {
                path: folder.to_owned(),
                found: NotADataset::at(folder),
            },
            error => error,
        })?;
        let tokenizer = Tokenizer::open(&manifest.tokenizer, folder);
        let tokenizer = tokenizer.map_err(|source| match source {
            // The error already names the tokenizer's file.
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

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The tokenizer whose ids the shards hold.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Opens the shards of one split. Each block is verified when it is first read. Files without block hashes are
    /// listed by [`crate::UnverifiedFiles`].
    ///
    /// # Errors
    /// Fails if a shard or its mask is missing or damaged, if its token count differs from the manifest, or if its
    /// block hashes do not match the file that the manifest describes.
    pub fn split(&self, split: Split) -> Result<TokenSplit, DataError> {
        let blocks = DatasetBlocks::read(&self.folder)?;
        let (mut shards, mut masks) = (Vec::new(), Vec::new());
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
            let mask = entry.mask.as_ref();
            let mask = mask.map(|mask| {
                let opened = Mask::open(&self.folder.join(&mask.file), entry.tokens)?;
                let opened = opened.indexing(mask.indexes_documents);
                opened.verified_by(&mask.blake3, blocks.of(&mask.file).cloned())
            });
            masks.push(mask.transpose()?);
            shards.push(shard.verified_by(&entry.blake3, blocks.of(&entry.file).cloned())?);
        }
        let vocab_size = self.tokenizer.vocab_size();
        Ok(TokenSplit::with_masks(shards, masks, vocab_size))
    }

    /// The total size of the token and mask files in bytes. Missing files count as 0.
    pub fn bytes(&self) -> u64 {
        let length = |file| fs::metadata(self.folder.join(file)).map_or(0, |found| found.len());
        self.manifest.files().map(length).sum()
    }
}

/// Returns true if a file or folder on the path does not exist.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// The tokens of one split: memory-mapped shards read as one sequence. Cheap to clone and to share between threads.
#[derive(Clone)]
pub struct TokenSplit {
    inner: Arc<Inner>,
}

struct Inner {
    shards: Vec<Shard>,
    /// The mask of each shard, if it has one.
    masks: Vec<Option<Mask>>,
    /// The offset of each shard in the sequence, followed by the total length.
    starts: Vec<u64>,
    vocab_size: usize,
}

impl TokenSplit {
    /// Joins `shards` into one sequence. Ids must be below `vocab_size`; each id is checked when it is read.
    pub fn new(shards: Vec<Shard>, vocab_size: usize) -> Self {
        let masks = shards.iter().map(|_| None).collect();
        Self::with_masks(shards, masks, vocab_size)
    }

    /// Like [`TokenSplit::new`], with the mask of each shard that has one.
    pub fn with_masks(shards: Vec<Shard>, masks: Vec<Option<Mask>>, vocab_size: usize) -> Self {
        let mut starts = vec![0];
        let mut end = 0;
        for shard in &shards {
            end += shard.len();
            starts.push(end);
        }
        let inner = Arc::new(Inner {
            shards,
            masks,
            starts,
            vocab_size,
        });
        Self { inner }
    }

    /// The number of tokens.
    pub fn len(&self) -> u64 {
        self.inner.starts.last().copied().unwrap_or(0)
    }

    /// Returns true if there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The files without block hashes, which cannot be verified block by block as they are read.
    pub(crate) fn unverified_files(&self) -> impl Iterator<Item = UnverifiedFile> {
        let shards = self.inner.shards.iter().filter_map(Shard::unverified_file);
        let masks = self.inner.masks.iter().flatten();
        shards.chain(masks.filter_map(Mask::unverified_file))
    }

    /// The vocabulary size, an exclusive upper bound of the ids.
    pub fn vocab_size(&self) -> usize {
        self.inner.vocab_size
    }

    /// Reads `len` tokens from `start`, across shard boundaries.
    ///
    /// # Errors
    /// [`DataError::OutOfBounds`] if the split has fewer tokens, [`DataError::DamagedBlock`] if a file has changed
    /// since it was written, [`DataError::TokenOutOfRange`] if an id is outside the vocabulary.
    pub fn read(&self, start: u64, len: u64) -> Result<Vec<u32>, DataError> {
        let mut ids = Vec::with_capacity(len.min(self.len()) as usize);
        self.each_shard(start, len, |at, from, len| {
            let (shard, first) = (&self.inner.shards[at], ids.len());
            shard.read_into(from, len, &mut ids)?;
            self.check(shard, from, &ids[first..])
        })?;
        Ok(ids)
    }

    /// Returns, for each of the `len` tokens from `start`, whether it is a target. `None` means that all are targets
    /// because no shard has a mask.
    ///
    /// # Errors
    /// [`DataError::OutOfBounds`] if the split has fewer tokens. Fails if a mask has an invalid byte.
    pub fn learnt(&self, start: u64, len: u64) -> Result<Option<Vec<bool>>, DataError> {
        if self.inner.masks.iter().all(Option::is_none) {
            return Ok(None);
        }
        let mut learnt = Vec::with_capacity(len.min(self.len()) as usize);
        self.each_shard(start, len, |at, from, len| match self.inner.masks.get(at) {
            Some(Some(mask)) => mask.read_into(from, len, &mut learnt),
            _ => {
                learnt.resize(learnt.len() + len as usize, true);
                Ok(())
            }
        })?;
        Ok(Some(learnt))
    }

    /// Returns, for each of the tokens `ids` read from `start`, whether a document begins there. Masks that index
    /// documents mark these tokens. Otherwise a document begins at every `end_of_text` that is not a target: the
    /// token that begins a document is never part of an answer.
    ///
    /// # Errors
    /// As [`TokenSplit::learnt`].
    pub(crate) fn beginnings(
        &self,
        start: u64,
        ids: &[u32],
        end_of_text: Option<u32>,
    ) -> Result<Vec<bool>, DataError> {
        let mut begins: Vec<bool> = ids.iter().map(|&id| Some(id) == end_of_text).collect();
        let (mut done, mut marked) = (0, Vec::new());
        self.each_shard(start, ids.len() as u64, |at, from, len| {
            marked.clear();
            let here = begins[done..].iter_mut();
            match self.inner.masks.get(at) {
                Some(Some(mask)) if mask.indexes_documents() => {
                    mask.beginnings_into(from, len, &mut marked)?;
                    let marked = here.zip(&marked);
                    marked.for_each(|(begins, marked)| *begins = *marked);
                }
                Some(Some(mask)) => {
                    mask.read_into(from, len, &mut marked)?;
                    let learnt = here.zip(&marked);
                    learnt.for_each(|(begins, learnt)| *begins &= !learnt);
                }
                _ => {}
            }
            done += len as usize;
            Ok(())
        })?;
        Ok(begins)
    }

    /// Calls `read` for each shard that overlaps the `len` tokens from `start`, with the shard's index, the offset of
    /// the first token in it and the number of tokens.
    fn each_shard(
        &self,
        start: u64,
        len: u64,
        mut read: impl FnMut(usize, u64, u64) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let total = self.len();
        let Some(end) = start.checked_add(len).filter(|&end| end <= total) else {
            return Err(DataError::OutOfBounds { start, len, total });
        };
        let starts = &self.inner.starts;
        // The last shard that begins at or before `start`.
        let mut at = starts
            .partition_point(|&begin| begin <= start)
            .saturating_sub(1);
        let mut position = start;
        while position < end {
            let stop = end.min(starts[at + 1]);
            read(at, position - starts[at], stop - position)?;
            position = stop;
            at += 1;
        }
        Ok(())
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

    /// A split of `ids` in shards of the given lengths.
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

    /// Like [`split_of`] with two shards. Only the second has a target mask.
    pub(crate) fn masked_split(ids: &[u32], learnt: &[bool], first: usize) -> TokenSplit {
        let split = split_of(ids, &[first, ids.len() - first], 70_000);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mask");
        let bytes: Vec<u8> = learnt[first..].iter().map(|&l| u8::from(l)).collect();
        fs::write(&path, &bytes).unwrap();
        let mask = Mask::open(&path, bytes.len() as u64).unwrap();
        let inner = Arc::into_inner(split.inner).unwrap();
        TokenSplit::with_masks(inner.shards, vec![None, Some(mask)], inner.vocab_size)
    }

    #[test]
    fn learnt_crosses_shards() {
        let ids: Vec<u32> = (0..12).collect();
        let learnt: Vec<bool> = (0..12).map(|i| i < 5 || i % 3 == 0).collect();
        let split = masked_split(&ids, &learnt, 5);
        for start in 0..12 {
            let found = split.learnt(start as u64, 12 - start as u64).unwrap();
            assert_eq!(found.unwrap(), learnt[start..]);
        }
        assert!(split.learnt(3, 10).is_err());
        assert_eq!(split_of(&ids, &[12], 20).learnt(0, 12).unwrap(), None);
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
    fn read_beyond_the_end_is_an_error() {
        let split = split_of(&[1, 2, 3], &[3], 4);
        let message = split.read(2, 2).unwrap_err().to_string();
        assert_eq!(message, "tokens 2 to 4 were requested, but the split has 3");
        assert!(split.read(u64::MAX, u64::MAX).is_err());
        assert!(split_of(&[], &[], 4).read(0, 1).is_err());
    }

    #[test]
    fn out_of_range_id_error_names_shard_and_position() {
        let split = split_of(&[0, 1, 2, 9, 3], &[2, 3], 5);
        assert_eq!(split.read(0, 3).unwrap(), [0, 1, 2]);
        let message = split.read(1, 4).unwrap_err().to_string();
        assert!(
            message.ends_with("1.bin: token 9 at position 1 is outside the vocabulary of 5"),
            "{message}"
        );
    }

    #[test]
    fn folder_without_manifest_is_not_a_dataset() {
        let folder = tempfile::tempdir().unwrap();
        let message = Dataset::open(folder.path()).err().unwrap().to_string();
        assert!(message.contains("dataset.json"), "{message}");
        fs::write(folder.path().join(MANIFEST_FILE), "{").unwrap();
        assert!(Dataset::open(folder.path()).is_err());
    }
}
