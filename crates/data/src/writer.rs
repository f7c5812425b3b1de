//! Writer for the shards and masks of one split.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::block_hashes::DatasetBlocks;
use crate::shard::{MaskWriter, file_hashes};
use crate::{
    DataError, MaskEntry, ShardEntry, ShardLayout, ShardWriter, Split, SplitManifest, TokenWidth,
};

/// Options of the written shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShardOptions {
    /// The width of a token.
    pub(crate) width: TokenWidth,
    /// The maximum number of tokens per shard.
    pub(crate) tokens: u64,
    /// True if each shard has a mask.
    pub(crate) masked: bool,
}

/// Writes the tokens of one split into shards, one after another.
pub(crate) struct SplitWriter<'a> {
    folder: &'a Path,
    split: Split,
    shards: ShardOptions,
    open: Option<OpenShard>,
    manifest: SplitManifest,
    /// The block hashes of the shards in `manifest` and of their masks.
    blocks: DatasetBlocks,
}

struct OpenShard {
    files: ShardFiles,
    writer: ShardWriter<File>,
    mask: Option<MaskWriter>,
    tokens: u64,
    documents: u64,
}

/// The paths of a shard and its mask.
struct ShardFiles {
    shard: PathBuf,
    mask: PathBuf,
}

/// The progress of a split. Everything it describes is on disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SplitState {
    /// The full shards. Its `bytes` include those of the open shard.
    full: SplitManifest,
    /// The shard being written, if there is one.
    open: Option<OpenState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenState {
    tokens: u64,
    documents: u64,
    learnt: u64,
}

impl<'a> SplitWriter<'a> {
    /// Begins `split` in `folder`. Creates no file before the first token.
    pub(crate) fn new(folder: &'a Path, split: Split, shards: ShardOptions) -> Self {
        Self {
            folder,
            split,
            shards,
            open: None,
            manifest: SplitManifest::default(),
            blocks: DatasetBlocks::default(),
        }
    }

    /// Resumes `split` in `folder` from `state`, and removes everything written after it. Full shards are read again
    /// to compute their block hashes.
    ///
    /// # Errors
    /// Fails if a file cannot be read or written, or if a full shard has changed since it was written.
    pub(crate) fn resume(
        folder: &'a Path,
        split: Split,
        shards: ShardOptions,
        state: SplitState,
    ) -> Result<Self, DataError> {
        let mut this = Self::new(folder, split, shards);
        this.manifest = state.full;
        for shard in &this.manifest.shards {
            let mask = shard.mask.iter().map(|mask| (&mask.file, &mask.blake3));
            for (name, blake3) in [(&shard.file, &shard.blake3)].into_iter().chain(mask) {
                let path = folder.join(name);
                let found = file_hashes(&path)?;
                if found.blake3 != *blake3 {
                    let reason = "it has changed since it was written".to_owned();
                    return Err(DataError::Shard { path, reason });
                }
                this.blocks.add(name, found.blocks);
            }
        }
        let mut index = this.manifest.shards.len();
        if let Some(OpenState {
            tokens,
            documents,
            learnt,
        }) = state.open
        {
            let files = this.files(index);
            let writer = ShardWriter::resume(&files.shard, shards.width, tokens)
                .map_err(DataError::io("continue", &files.shard))?;
            let mask = match shards.masked {
                true => Some(
                    MaskWriter::resume(&files.mask, tokens, learnt)
                        .map_err(DataError::io("continue", &files.mask))?,
                ),
                false => None,
            };
            this.open = Some(OpenShard {
                files,
                writer,
                mask,
                tokens,
                documents,
            });
            index += 1;
        }
        this.remove_from(index)?;
        Ok(this)
    }

    /// Appends the tokens of `bytes` bytes of text. `learnt` marks the targets; without it all tokens are targets. If
    /// `new_document` is set, a document begins with the first token.
    pub(crate) fn write(
        &mut self,
        ids: &[u32],
        learnt: Option<&[bool]>,
        bytes: u64,
        new_document: bool,
    ) -> Result<(), DataError> {
        self.manifest.bytes += bytes;
        let mut begins = u64::from(new_document);
        let mut from = 0;
        while from < ids.len() {
            let limit = self.shards.tokens;
            let shard = self.open_shard()?;
            let room = usize::try_from(limit - shard.tokens).unwrap_or(usize::MAX);
            let range = from..from + room.min(ids.len() - from);
            let documents = std::mem::take(&mut begins);
            shard
                .writer
                .write(&ids[range.clone()])
                .map_err(DataError::io("write", &shard.files.shard))?;
            if let Some(mask) = &mut shard.mask {
                let all = || vec![true; range.len()];
                let learnt = learnt.map_or_else(all, |learnt| learnt[range.clone()].to_vec());
                mask.write(&learnt, documents > 0)
                    .map_err(DataError::io("write", &shard.files.mask))?;
            }
            shard.tokens += range.len() as u64;
            shard.documents += documents;
            if shard.tokens == limit {
                self.close()?;
            }
            from = range.end;
        }
        Ok(())
    }

    /// Syncs the files and returns the progress.
    pub(crate) fn state(&mut self) -> Result<SplitState, DataError> {
        let open = match &mut self.open {
            Some(shard) => {
                let files = &shard.files;
                shard
                    .writer
                    .sync()
                    .map_err(DataError::io("write", &files.shard))?;
                if let Some(mask) = &mut shard.mask {
                    mask.sync().map_err(DataError::io("write", &files.mask))?;
                }
                Some(OpenState {
                    tokens: shard.tokens,
                    documents: shard.documents,
                    learnt: shard.mask.as_ref().map_or(0, MaskWriter::learnt),
                })
            }
            None => None,
        };
        let full = self.manifest.clone();
        Ok(SplitState { full, open })
    }

    /// Finishes the split. Returns its description and the block hashes of its files.
    pub(crate) fn finish(mut self) -> Result<(SplitManifest, DatasetBlocks), DataError> {
        self.close()?;
        Ok((self.manifest, self.blocks))
    }

    fn files(&self, index: usize) -> ShardFiles {
        let path = |extension| {
            let name = format!("{}_{index:05}.{extension}", self.split);
            self.folder.join(name)
        };
        ShardFiles {
            shard: path("bin"),
            mask: path("mask"),
        }
    }

    fn open_shard(&mut self) -> Result<&mut OpenShard, DataError> {
        let open = match self.open.take() {
            Some(open) => open,
            None => {
                let files = self.files(self.manifest.shards.len());
                let writer = ShardWriter::create(&files.shard, self.shards.width)
                    .map_err(DataError::io("write", &files.shard))?;
                let mask = match self.shards.masked {
                    true => Some(
                        MaskWriter::create(&files.mask)
                            .map_err(DataError::io("write", &files.mask))?,
                    ),
                    false => None,
                };
                OpenShard {
                    files,
                    writer,
                    mask,
                    tokens: 0,
                    documents: 0,
                }
            }
        };
        Ok(self.open.insert(open))
    }

    fn close(&mut self) -> Result<(), DataError> {
        let Some(shard) = self.open.take() else {
            return Ok(());
        };
        let ShardFiles { shard: path, mask } = &shard.files;
        let tokens = shard
            .writer
            .finish()
            .map_err(DataError::io("write", path))?;
        let mask = match shard.mask {
            Some(mut writer) => {
                writer.sync().map_err(DataError::io("write", mask))?;
                let (file, hashes) = (file_name(mask), file_hashes(mask)?);
                self.blocks.add(&file, hashes.blocks);
                Some(MaskEntry {
                    file,
                    learnt: writer.learnt(),
                    indexes_documents: true,
                    blake3: hashes.blake3,
                })
            }
            None => None,
        };
        // Hash the file after writing: its header comes first, but is only known at the end.
        let (file, hashes) = (file_name(path), file_hashes(path)?);
        self.blocks.add(&file, hashes.blocks);
        self.manifest.tokens += tokens;
        self.manifest.documents += shard.documents;
        self.manifest.shards.push(ShardEntry {
            file,
            tokens,
            documents: shard.documents,
            blake3: hashes.blake3,
            layout: ShardLayout::LlmC,
            mask,
        });
        Ok(())
    }

    /// Removes the shards from `index` on, which were written after the saved progress.
    fn remove_from(&self, index: usize) -> Result<(), DataError> {
        for index in index.. {
            let ShardFiles { shard, mask } = self.files(index);
            let there = [shard, mask].into_iter().filter(|path| path.exists());
            let there: Vec<PathBuf> = there.collect();
            if there.is_empty() {
                break;
            }
            for path in there {
                std::fs::remove_file(&path).map_err(DataError::io("remove", &path))?;
            }
        }
        Ok(())
    }
}

/// The file name of `path`.
fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
