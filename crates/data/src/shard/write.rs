//! Writer for shards.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use super::{HEADER_BYTES, MAX_SHARD_TOKENS, TokenWidth, header};

const BUFFER_BYTES: usize = 1 << 18;

/// The number of ids encoded at a time.
const IDS_AT_ONCE: usize = 1024;

/// Writes a shard: a header without a valid count, then the tokens. The count is filled in at the end.
pub struct ShardWriter<W: Write + Seek> {
    out: BufWriter<W>,
    width: TokenWidth,
    tokens: u64,
}

impl ShardWriter<File> {
    /// Creates the shard `path`, replacing an existing file.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn create(path: &Path, width: TokenWidth) -> io::Result<Self> {
        Self::new(File::create(path)?, width)
    }

    /// Resumes the shard `path`, which was begun with [`ShardWriter::create`], after its first `tokens` tokens. The
    /// bytes after them are truncated.
    ///
    /// # Errors
    /// Returns the operating system's error, or `UnexpectedEof` if the file has fewer tokens.
    pub fn resume(path: &Path, width: TokenWidth, tokens: u64) -> io::Result<Self> {
        let mut file = File::options().read(true).write(true).open(path)?;
        let bytes = HEADER_BYTES + tokens * width.bytes();
        if file.metadata()?.len() < bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.set_len(bytes)?;
        file.seek(SeekFrom::End(0))?;
        let out = BufWriter::with_capacity(BUFFER_BYTES, file);
        Ok(Self { out, width, tokens })
    }

    /// Syncs the tokens written so far to disk. The count in the header is not updated.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn sync(&mut self) -> io::Result<()> {
        self.out.flush()?;
        self.out.get_ref().sync_data()
    }

    /// Completes the shard and syncs it to disk. Returns the number of tokens.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn finish(self) -> io::Result<u64> {
        let (file, tokens) = self.into_inner()?;
        file.sync_all()?;
        Ok(tokens)
    }
}

impl<W: Write + Seek> ShardWriter<W> {
    /// Begins a shard in `out`, which must be at its beginning.
    ///
    /// # Errors
    /// Returns the error of `out`.
    pub fn new(out: W, width: TokenWidth) -> io::Result<Self> {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
        // An invalid count, so that a shard whose writing was interrupted is rejected.
        out.write_all(&header(width, -1))?;
        let tokens = 0;
        Ok(Self { out, width, tokens })
    }

    /// Appends `ids`.
    ///
    /// # Errors
    /// Returns the error of the output, or `InvalidData` if an id does not fit the width or if there are more than
    /// 2,147,483,647 tokens.
    pub fn write(&mut self, ids: &[u32]) -> io::Result<()> {
        self.tokens += ids.len() as u64;
        if self.tokens > MAX_SHARD_TOKENS {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "too many tokens for one shard",
            ));
        }
        // Encode in batches: a call per token would be slower than the disk.
        for ids in ids.chunks(IDS_AT_ONCE) {
            match self.width {
                TokenWidth::U16 => {
                    let mut bytes = [0; IDS_AT_ONCE * 2];
                    for (slot, &id) in bytes.as_chunks_mut().0.iter_mut().zip(ids) {
                        let id = u16::try_from(id)
                            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                        *slot = id.to_le_bytes();
                    }
                    self.out.write_all(&bytes[..ids.len() * 2])?;
                }
                TokenWidth::U32 => {
                    let mut bytes = [0; IDS_AT_ONCE * 4];
                    for (slot, &id) in bytes.as_chunks_mut().0.iter_mut().zip(ids) {
                        *slot = id.to_le_bytes();
                    }
                    self.out.write_all(&bytes[..ids.len() * 4])?;
                }
            }
        }
        Ok(())
    }

    /// Writes the count into the header. Returns the flushed output and the count.
    fn into_inner(mut self) -> io::Result<(W, u64)> {
        let count = i32::try_from(self.tokens)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&header(self.width, count))?;
        let out = self
            .out
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        Ok((out, self.tokens))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Cursor;

    use super::*;

    /// A disk that is full after `left` bytes.
    struct FullDisk {
        left: usize,
    }

    impl Write for FullDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.left == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let written = bytes.len().min(self.left);
            self.left -= written;
            Ok(written)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Seek for FullDisk {
        fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
            Ok(0)
        }
    }

    /// The bytes of a shard of `ids`.
    pub(in super::super) fn shard_bytes(width: TokenWidth, ids: &[u32]) -> Vec<u8> {
        let mut writer = ShardWriter::new(Cursor::new(Vec::new()), width).unwrap();
        writer.write(ids).unwrap();
        writer.into_inner().unwrap().0.into_inner()
    }

    /// The bytes of a shard that was begun but never finished.
    pub(in super::super) fn unfinished_bytes() -> Vec<u8> {
        let mut writer = ShardWriter::new(Cursor::new(Vec::new()), TokenWidth::U16).unwrap();
        writer.write(&[1, 2]).unwrap();
        writer.out.flush().unwrap();
        writer.out.get_ref().get_ref().clone()
    }

    #[test]
    fn shard_bytes_match_llm_c() {
        let mut expected = vec![0; 1024];
        expected[..12].copy_from_slice(&[0x88, 0xD8, 0x34, 0x01, 1, 0, 0, 0, 3, 0, 0, 0]);
        expected.extend([1, 0, 0x50, 0xC4, 0xFF, 0xFF]);
        assert_eq!(shard_bytes(TokenWidth::U16, &[1, 50_256, 65_535]), expected);

        let wide = shard_bytes(TokenWidth::U32, &[199_999]);
        assert_eq!(wide[..12], [0xA1, 0xD9, 0x34, 0x01, 7, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(wide[1024..], [0x3F, 0x0D, 0x03, 0x00]);
    }

    #[test]
    fn id_too_large_for_the_width_is_rejected() {
        let mut writer = ShardWriter::new(Cursor::new(Vec::new()), TokenWidth::U16).unwrap();
        assert_eq!(
            writer.write(&[65_536]).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }

    #[test]
    fn resumed_shard_equals_uninterrupted_shard() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shard.bin");
        for width in [TokenWidth::U16, TokenWidth::U32] {
            let ids: Vec<u32> = (0..5000).map(|i| i * 13).collect();
            let mut writer = ShardWriter::create(&path, width).unwrap();
            writer.write(&ids[..3000]).unwrap();
            writer.sync().unwrap();
            // Written after the progress was saved.
            writer.write(&[9; 100]).unwrap();
            drop(writer);
            let mut writer = ShardWriter::resume(&path, width, 3000).unwrap();
            writer.write(&ids[3000..]).unwrap();
            assert_eq!(writer.finish().unwrap(), 5000);
            assert!(std::fs::read(&path).unwrap() == shard_bytes(width, &ids));
            let error = ShardWriter::resume(&path, width, 5001).err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn full_disk_is_an_error_at_any_position() {
        let ids = vec![7; 500_000];
        for left in [0, 1_000, 1_024, 300_000, 1_000_000] {
            let write = || {
                let mut writer = ShardWriter::new(FullDisk { left }, TokenWidth::U16)?;
                writer.write(&ids)?;
                writer.into_inner()
            };
            assert_eq!(
                write().err().unwrap().kind(),
                io::ErrorKind::StorageFull,
                "{left}"
            );
        }
    }
}
