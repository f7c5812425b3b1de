//! One split's shards, filled one after the other, with masks beside them where there are any.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::shard::{MaskWriter, file_blake3};
use crate::{
    DataError, MaskEntry, ShardEntry, ShardLayout, ShardWriter, Split, SplitManifest, TokenWidth,
};

/// How shards are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shards {
    /// How many bytes a token takes.
    pub(crate) width: TokenWidth,
    /// The most tokens in one.
    pub(crate) tokens: u64,
    /// Whether each has a mask.
    pub(crate) masked: bool,
}

/// Writes the tokens of one split into shards.
pub(crate) struct SplitWriter<'a> {
    folder: &'a Path,
    split: Split,
    shards: Shards,
    open: Option<OpenShard>,
    manifest: SplitManifest,
}

struct OpenShard {
    files: Files,
    writer: ShardWriter<File>,
    mask: Option<MaskWriter>,
    tokens: u64,
    documents: u64,
}

/// The paths of a shard and its mask.
struct Files {
    shard: PathBuf,
    mask: PathBuf,
}

/// How far a split is written: all of it is on the disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SplitState {
    /// The shards that are full; bytes of the open one too.
    full: SplitManifest,
    /// The shard after them, if it has been begun.
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
    /// Begins `split` in `folder`; no file is made before the first token.
    pub(crate) fn new(folder: &'a Path, split: Split, shards: Shards) -> Self {
        Self {
            folder,
            split,
            shards,
            open: None,
            manifest: SplitManifest::default(),
        }
    }

    /// Goes on with `split` in `folder` from `state`: what was written after it is taken back.
    pub(crate) fn resume(
        folder: &'a Path,
        split: Split,
        shards: Shards,
        state: SplitState,
    ) -> Result<Self, DataError> {
        let mut this = Self::new(folder, split, shards);
        this.manifest = state.full;
        let mut index = this.manifest.shards.len();
        if let Some(OpenState {
            tokens,
            documents,
            learnt,
        }) = state.open
        {
            let files = this.files(index);
            let writer = ShardWriter::resume(&files.shard, shards.width, tokens)
                .map_err(DataError::io("go on with", &files.shard))?;
            let mask = match shards.masked {
                true => Some(
                    MaskWriter::resume(&files.mask, tokens, learnt)
                        .map_err(DataError::io("go on with", &files.mask))?,
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

    /// Appends the tokens of `bytes` bytes of text, at whose beginning a document may begin; `learnt` says of each
    /// whether it is to be learnt, and without it all are.
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
            shard
                .writer
                .write(&ids[range.clone()])
                .map_err(DataError::io("write", &shard.files.shard))?;
            if let Some(mask) = &mut shard.mask {
                let all = || vec![true; range.len()];
                let learnt = learnt.map_or_else(all, |learnt| learnt[range.clone()].to_vec());
                mask.write(&learnt)
                    .map_err(DataError::io("write", &shard.files.mask))?;
            }
            shard.tokens += range.len() as u64;
            shard.documents += std::mem::take(&mut begins);
            if shard.tokens == limit {
                self.close()?;
            }
            from = range.end;
        }
        Ok(())
    }

    /// How far it is, once that is on the disk.
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

    /// Ends the split; returns what the manifest says of it.
    pub(crate) fn finish(mut self) -> Result<SplitManifest, DataError> {
        self.close()?;
        Ok(self.manifest)
    }

    fn files(&self, index: usize) -> Files {
        let path = |extension| {
            let name = format!("{}_{index:05}.{extension}", self.split);
            self.folder.join(name)
        };
        Files {
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
        let Files { shard: path, mask } = &shard.files;
        let tokens = shard
            .writer
            .finish()
            .map_err(DataError::io("write", path))?;
        let mask = match shard.mask {
            Some(mut writer) => {
                writer.sync().map_err(DataError::io("write", mask))?;
                Some(MaskEntry {
                    file: file_name(mask),
                    learnt: writer.learnt(),
                    blake3: file_blake3(mask)?,
                })
            }
            None => None,
        };
        self.manifest.tokens += tokens;
        self.manifest.documents += shard.documents;
        self.manifest.shards.push(ShardEntry {
            file: file_name(path),
            tokens,
            documents: shard.documents,
            // Read back rather than hashed on the way: the header, which comes first, is known last.
            blake3: file_blake3(path)?,
            layout: ShardLayout::LlmC,
            mask,
        });
        Ok(())
    }

    /// Removes the shards from `index` on, which are not to be there yet.
    fn remove_from(&self, index: usize) -> Result<(), DataError> {
        for index in index.. {
            let Files { shard, mask } = self.files(index);
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

/// The name of one of our files.
fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: Shards = Shards {
        width: TokenWidth::U16,
        tokens: 4,
        masked: false,
    };
    const MILLION: Shards = Shards {
        tokens: 1 << 20,
        ..FOUR
    };

    #[test]
    fn masks_lie_beside_the_shards_and_what_has_none_is_learnt() {
        let folder = tempfile::tempdir().unwrap();
        let shards = Shards {
            masked: true,
            ..FOUR
        };
        let mut writer = SplitWriter::new(folder.path(), Split::Train, shards);
        let learnt = [false, true, false, true, true];
        writer
            .write(&[1, 2, 3, 4, 5], Some(&learnt), 5, true)
            .unwrap();
        writer.write(&[6], None, 1, true).unwrap();
        let manifest = writer.finish().unwrap();
        let masks = manifest.shards.iter().map(|shard| {
            let mask = shard.mask.as_ref().unwrap();
            let bytes = std::fs::read(folder.path().join(&mask.file)).unwrap();
            let hash = blake3::hash(&bytes).to_hex().to_string();
            assert_eq!(mask.blake3, hash);
            (mask.file.clone(), mask.learnt, bytes)
        });
        let expected = [
            ("train_00000.mask".to_owned(), 2, vec![0, 1, 0, 1]),
            ("train_00001.mask".to_owned(), 2, vec![1, 1]),
        ];
        assert_eq!(masks.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_writer_gone_on_with_writes_what_one_writes_at_once() {
        let ids: Vec<u32> = (0..23).collect();
        let learnt: Vec<bool> = ids.iter().map(|id| id % 3 == 0).collect();
        let shards = Shards {
            masked: true,
            ..FOUR
        };
        let files = |folder: &Path| -> Vec<_> {
            let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
            let read = |path: PathBuf| (path.clone(), std::fs::read(path).unwrap());
            let mut files: Vec<_> = entries.map(|entry| read(entry.path())).collect();
            files.iter_mut().for_each(|(path, _)| {
                *path = path.file_name().unwrap().into();
            });
            files.sort();
            files
        };
        let write = |writer: &mut SplitWriter, range: std::ops::Range<usize>| {
            for at in range {
                let learnt = Some(&learnt[at..at + 1]);
                writer
                    .write(&ids[at..at + 1], learnt, 2, at % 5 == 0)
                    .unwrap();
            }
        };
        let whole = tempfile::tempdir().unwrap();
        let mut writer = SplitWriter::new(whole.path(), Split::Val, shards);
        write(&mut writer, 0..23);
        let expected = writer.finish().unwrap();
        for at in 0..23 {
            let folder = tempfile::tempdir().unwrap();
            let mut writer = SplitWriter::new(folder.path(), Split::Val, shards);
            write(&mut writer, 0..at);
            let state = writer.state().unwrap();
            // What is written after the note is lost, a shard that is begun after it too.
            write(&mut writer, at..23);
            drop(writer);
            let mut writer = SplitWriter::resume(folder.path(), Split::Val, shards, state).unwrap();
            write(&mut writer, at..23);
            assert_eq!(writer.finish().unwrap(), expected);
            assert_eq!(files(folder.path()), files(whole.path()), "{at}");
        }
    }

    #[test]
    fn shards_are_filled_to_the_limit_and_documents_counted_where_they_begin() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = SplitWriter::new(folder.path(), Split::Val, FOUR);
        writer.write(&[1, 2, 3, 4, 5, 6], None, 9, true).unwrap();
        writer.write(&[7], None, 1, false).unwrap();
        writer.write(&[8, 9], None, 2, true).unwrap();
        let manifest = writer.finish().unwrap();
        assert_eq!(
            (manifest.tokens, manifest.documents, manifest.bytes),
            (9, 2, 12)
        );
        let shards: Vec<_> = manifest
            .shards
            .iter()
            .map(|s| (s.file.as_str(), s.tokens, s.documents))
            .collect();
        // The second document begins with the last token of the second shard.
        assert_eq!(
            shards,
            [
                ("val_00000.bin", 4, 1),
                ("val_00001.bin", 4, 1),
                ("val_00002.bin", 1, 0)
            ]
        );
        let bytes = std::fs::read(folder.path().join("val_00000.bin")).unwrap();
        assert_eq!(
            manifest.shards[0].blake3,
            blake3::hash(&bytes).to_hex().to_string()
        );
    }

    #[test]
    fn no_tokens_make_no_shard() {
        let folder = tempfile::tempdir().unwrap();
        let writer = SplitWriter::new(folder.path(), Split::Val, FOUR);
        assert_eq!(writer.finish().unwrap(), SplitManifest::default());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_an_error_with_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let shard = folder.path().join("train_00000.bin");
        // Linux's own stand-in for a disk without room.
        std::os::unix::fs::symlink("/dev/full", &shard).unwrap();
        let mut writer = SplitWriter::new(folder.path(), Split::Train, MILLION);
        let message = writer
            .write(&vec![1; 1 << 20], None, 1, true)
            .unwrap_err()
            .to_string();
        assert!(
            message.starts_with(&format!("cannot write {}: ", shard.display())),
            "{message}"
        );
        assert!(message.contains("No space left"), "{message}");
    }
}
