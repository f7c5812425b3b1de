//! Random access to a shard.

use std::path::Path;

use super::blocks::BlockHashes;
use super::verified_map::{UnverifiedFile, VerifiedMap};
use super::{
    HEADER_BYTES, ShardLayout, TokenRegion, TokenWidth, decode, file_hashes, locate_tokens,
};
use crate::DataError;

/// A memory-mapped shard with a validated header and length.
///
/// The file must not be truncated while it is open: accessing the missing pages would make the operating system kill
/// the process.
pub struct Shard {
    file: VerifiedMap,
    region: TokenRegion,
}

impl Shard {
    /// Opens the shard `path`, which has a header.
    ///
    /// # Errors
    /// Fails if the file cannot be opened, is not a shard or has an unsupported version, or if its length differs
    /// from the one stated in the header.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        Self::open_as(path, ShardLayout::LlmC)
    }

    /// Opens the shard `path` with the given layout.
    ///
    /// # Errors
    /// As [`Shard::open`]. Without a header, fails if the length is odd.
    pub fn open_as(path: &Path, layout: ShardLayout) -> Result<Self, DataError> {
        let file = VerifiedMap::open(path)?;
        let head = file.unverified(0, HEADER_BYTES.min(file.len()))?;
        match locate_tokens(layout, head, file.len()) {
            Ok(region) => Ok(Self { file, region }),
            Err(reason) => Err(DataError::Shard {
                path: path.to_owned(),
                reason,
            }),
        }
    }

    /// Enables verification of each block when it is first read, as far as its hash is known.
    pub(crate) fn verified_by(
        mut self,
        blake3: &str,
        blocks: Option<BlockHashes>,
    ) -> Result<Self, DataError> {
        self.file.verify_by(blake3, blocks)?;
        Ok(self)
    }

    /// The file, if its blocks cannot be verified one by one.
    pub(crate) fn unverified_file(&self) -> Option<UnverifiedFile> {
        self.file.unverified_file()
    }

    /// The number of tokens.
    pub fn len(&self) -> u64 {
        self.region.tokens
    }

    /// Returns true if there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.region.tokens == 0
    }

    /// The width of a token.
    pub fn width(&self) -> TokenWidth {
        self.region.width
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Appends `len` tokens from `start` to `out`.
    ///
    /// # Errors
    /// [`DataError::OutOfBounds`] if there are fewer tokens, [`DataError::DamagedBlock`] if the bytes have changed
    /// since they were written.
    pub fn read_into(&self, start: u64, len: u64, out: &mut Vec<u32>) -> Result<(), DataError> {
        if start
            .checked_add(len)
            .is_none_or(|end| end > self.region.tokens)
        {
            let total = self.region.tokens;
            return Err(DataError::OutOfBounds { start, len, total });
        }
        let TokenRegion {
            width, first_byte, ..
        } = self.region;
        let first = first_byte + start * width.bytes();
        let bytes = self.file.bytes(first, len * width.bytes())?;
        decode(width, bytes, out);
        Ok(())
    }

    /// Reads the whole file and returns its BLAKE3 in hexadecimal.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
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

    fn error_message(bytes: &[u8]) -> String {
        open_bytes(bytes).err().unwrap().to_string()
    }

    #[test]
    fn tokens_are_read_from_any_position() {
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
    fn damaged_shard_is_rejected_on_open() {
        let good = shard_bytes(TokenWidth::U16, &[1, 2, 3]);
        assert!(error_message(&[]).contains("0 bytes are less than its header's 1024"));
        assert!(
            error_message(&good[..1029])
                .contains("1029 bytes, but the 3 tokens of its header need 1030")
        );
        let mut longer = good.clone();
        longer.push(0);
        assert!(error_message(&longer).contains("1031 bytes"));
        let edited = |at: usize, byte| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            error_message(&bytes)
        };
        assert!(edited(0, 0).contains("not with 20240520"));
        assert!(edited(4, 2).contains("version 2 of format 20240520 is unknown"));
        assert!(edited(11, 0xFF).contains("not completely written"));
    }

    #[test]
    fn unfinished_shard_is_rejected() {
        assert!(error_message(&unfinished_bytes()).contains("not completely written"));
    }

    #[test]
    fn missing_shard_error_names_the_path() {
        let message = Shard::open(Path::new("no/such.bin"))
            .err()
            .unwrap()
            .to_string();
        assert!(message.starts_with("cannot read no/such.bin"), "{message}");
    }
}
