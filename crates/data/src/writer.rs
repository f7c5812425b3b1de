//! One split's shards, filled one after the other.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::{
    DataError, Shard, ShardEntry, ShardLayout, ShardWriter, Split, SplitManifest, TokenWidth,
};

/// Writes the tokens of one split into shards of at most a given number of tokens.
pub(crate) struct SplitWriter<'a> {
    folder: &'a Path,
    split: Split,
    width: TokenWidth,
    shard_tokens: u64,
    open: Option<OpenShard>,
    manifest: SplitManifest,
}

struct OpenShard {
    file: String,
    path: PathBuf,
    writer: ShardWriter<File>,
    tokens: u64,
    documents: u64,
}

impl<'a> SplitWriter<'a> {
    /// Begins `split` in `folder`; no file is made before the first token.
    pub(crate) fn new(
        folder: &'a Path,
        split: Split,
        width: TokenWidth,
        shard_tokens: u64,
    ) -> Self {
        Self {
            folder,
            split,
            width,
            shard_tokens,
            open: None,
            manifest: SplitManifest::default(),
        }
    }

    /// Appends the tokens of `bytes` bytes of text, at whose beginning a document may begin.
    pub(crate) fn write(
        &mut self,
        ids: &[u32],
        bytes: u64,
        new_document: bool,
    ) -> Result<(), DataError> {
        self.manifest.bytes += bytes;
        let mut begins = u64::from(new_document);
        let mut rest = ids;
        while !rest.is_empty() {
            let limit = self.shard_tokens;
            let shard = self.open_shard()?;
            let room = usize::try_from(limit - shard.tokens).unwrap_or(usize::MAX);
            let (head, tail) = rest.split_at(room.min(rest.len()));
            shard
                .writer
                .write(head)
                .map_err(DataError::io("write", &shard.path))?;
            shard.tokens += head.len() as u64;
            shard.documents += std::mem::take(&mut begins);
            if shard.tokens == limit {
                self.close()?;
            }
            rest = tail;
        }
        Ok(())
    }

    /// Ends the split; returns what the manifest says of it.
    pub(crate) fn finish(mut self) -> Result<SplitManifest, DataError> {
        self.close()?;
        Ok(self.manifest)
    }

    fn open_shard(&mut self) -> Result<&mut OpenShard, DataError> {
        let open = match self.open.take() {
            Some(open) => open,
            None => {
                let file = format!("{}_{:05}.bin", self.split, self.manifest.shards.len());
                let path = self.folder.join(&file);
                let writer = ShardWriter::create(&path, self.width)
                    .map_err(DataError::io("write", &path))?;
                OpenShard {
                    file,
                    path,
                    writer,
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
        let tokens = shard
            .writer
            .finish()
            .map_err(DataError::io("write", &shard.path))?;
        // Read back rather than hashed on the way: the header, which comes first, is known last.
        let blake3 = Shard::open(&shard.path)?.blake3()?;
        self.manifest.tokens += tokens;
        self.manifest.documents += shard.documents;
        self.manifest.shards.push(ShardEntry {
            file: shard.file,
            tokens,
            documents: shard.documents,
            blake3,
            layout: ShardLayout::LlmC,
            mask: None,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_filled_to_the_limit_and_documents_counted_where_they_begin() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = SplitWriter::new(folder.path(), Split::Val, TokenWidth::U16, 4);
        writer.write(&[1, 2, 3, 4, 5, 6], 9, true).unwrap();
        writer.write(&[7], 1, false).unwrap();
        writer.write(&[8, 9], 2, true).unwrap();
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
        let writer = SplitWriter::new(folder.path(), Split::Val, TokenWidth::U16, 4);
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
        let mut writer = SplitWriter::new(folder.path(), Split::Train, TokenWidth::U16, 1 << 20);
        let message = writer
            .write(&vec![1; 1 << 20], 1, true)
            .unwrap_err()
            .to_string();
        assert!(
            message.starts_with(&format!("cannot write {}: ", shard.display())),
            "{message}"
        );
        assert!(message.contains("No space left"), "{message}");
    }
}
