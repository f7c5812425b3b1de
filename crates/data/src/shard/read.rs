//! Reading a shard.

use std::path::Path;

use super::blocks::BlockHashes;
use super::verified_map::{VerifiedMap, WholeFile};
use super::{HEADER_BYTES, Placed, ShardLayout, TokenWidth, decode, file_hashes, place};
use crate::DataError;

/// A memory-mapped shard, whose header and length have been checked.
///
/// The file must not be cut short while it is open: the operating system would end the process.
pub struct Shard {
    file: VerifiedMap,
    placed: Placed,
}

impl Shard {
    /// Opens the shard `path`, which has a header.
    ///
    /// # Errors
    /// Fails if it cannot be opened, is shorter than a header, is no shard or of an unknown version, or if its length
    /// is not what its header says.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        Self::open_as(path, ShardLayout::LlmC)
    }

    /// Opens the shard `path`, whose tokens lie as `layout` says.
    ///
    /// # Errors
    /// As [`Shard::open`]; without a header, where its length is odd.
    pub fn open_as(path: &Path, layout: ShardLayout) -> Result<Self, DataError> {
        let file = VerifiedMap::open(path)?;
        let head = file.unverified(0, HEADER_BYTES.min(file.len()))?;
        match place(layout, head, file.len()) {
            Ok(placed) => Ok(Self { file, placed }),
            Err(reason) => Err(DataError::Shard {
                path: path.to_owned(),
                reason,
            }),
        }
    }

    /// Verifies every block when it is first read, if its hash is known.
    pub(crate) fn verified_by(
        mut self,
        blake3: &str,
        blocks: Option<BlockHashes>,
    ) -> Result<Self, DataError> {
        self.file.verify_by(blake3, blocks)?;
        Ok(self)
    }

    /// The file, if its block hashes are unknown.
    pub(crate) fn whole_file(&self) -> Option<WholeFile> {
        self.file.whole_file()
    }

    /// The number of tokens that it holds.
    pub fn len(&self) -> u64 {
        self.placed.tokens
    }

    /// Returns true if it holds no tokens.
    pub fn is_empty(&self) -> bool {
        self.placed.tokens == 0
    }

    /// The number of bytes that a token takes in it.
    pub fn width(&self) -> TokenWidth {
        self.placed.width
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Appends `len` tokens from `start` on to `out`.
    ///
    /// # Errors
    /// [`DataError::OutOfBounds`] where there are not as many; [`DataError::DamagedBlock`] where they are not the bytes
    /// that were written.
    pub fn read_into(&self, start: u64, len: u64, out: &mut Vec<u32>) -> Result<(), DataError> {
        if start
            .checked_add(len)
            .is_none_or(|end| end > self.placed.tokens)
        {
            let total = self.placed.tokens;
            return Err(DataError::OutOfBounds { start, len, total });
        }
        let Placed {
            width, first_byte, ..
        } = self.placed;
        let first = first_byte + start * width.bytes();
        let bytes = self.file.bytes(first, len * width.bytes())?;
        decode(width, bytes, out);
        Ok(())
    }

    /// BLAKE3 of the whole file, in hexadecimal; reads all of it.
    ///
    /// # Errors
    /// Fails if it cannot be read.
    pub fn blake3(&self) -> Result<String, DataError> {
        Ok(file_hashes(self.path())?.blake3)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::write::tests::{shard_bytes, unfinished_bytes};
    use super::*;

    fn open_bytes(bytes: &[u8]) -> Result<Shard, DataError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shard.bin");
        fs::write(&path, bytes).unwrap();
        Shard::open(&path)
    }

    fn refusal(bytes: &[u8]) -> String {
        open_bytes(bytes).err().unwrap().to_string()
    }

    #[test]
    fn tokens_come_back_from_any_place() {
        for width in [TokenWidth::U16, TokenWidth::U32] {
            let ids: Vec<u32> = (0..1000).map(|i| i * 61).collect();
            let shard = open_bytes(&shard_bytes(width, &ids)).unwrap();
            assert_eq!((shard.len(), shard.width()), (1000, width));
            let mut read = Vec::new();
            shard.read_into(3, 5, &mut read).unwrap();
            shard.read_into(1000, 0, &mut read).unwrap();
            assert_eq!(read, ids[3..8]);
            let error = shard.read_into(998, 3, &mut read).unwrap_err();
            assert!(matches!(
                error,
                DataError::OutOfBounds {
                    start: 998,
                    len: 3,
                    total: 1000
                }
            ));
            assert!(shard.read_into(u64::MAX, 2, &mut read).is_err());
        }
    }

    #[test]
    fn damaged_shards_are_refused_before_use() {
        let good = shard_bytes(TokenWidth::U16, &[1, 2, 3]);
        assert!(refusal(&[]).contains("0 bytes are less than its header's 1024"));
        assert!(
            refusal(&good[..1029]).contains("1029 bytes, but the 3 tokens of its header need 1030")
        );
        let mut longer = good.clone();
        longer.push(0);
        assert!(refusal(&longer).contains("1031 bytes"));
        let edited = |at: usize, byte| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            refusal(&bytes)
        };
        assert!(edited(0, 0).contains("not with 20240520"));
        assert!(edited(4, 2).contains("version 2 of format 20240520 is unknown"));
        assert!(edited(11, 0xFF).contains("not completely written"));
    }

    #[test]
    fn a_shard_that_was_never_finished_is_refused() {
        assert!(refusal(&unfinished_bytes()).contains("not completely written"));
    }

    #[test]
    fn a_missing_shard_is_an_error_with_its_path() {
        let message = Shard::open(Path::new("no/such.bin"))
            .err()
            .unwrap()
            .to_string();
        assert!(message.starts_with("cannot read no/such.bin"), "{message}");
    }
}
