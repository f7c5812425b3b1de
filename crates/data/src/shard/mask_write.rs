//! Writer for masks.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use super::mask::{BEGINS, LEARNT};

/// Writes the targets and document starts of a shard, one byte per token.
pub(crate) struct MaskWriter {
    out: BufWriter<File>,
    learnt: u64,
}

impl MaskWriter {
    /// Creates the mask `path`, replacing an existing file.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let out = BufWriter::new(File::create(path)?);
        Ok(Self { out, learnt: 0 })
    }

    /// Resumes the mask `path` after its first `tokens` tokens, of which `learnt` are targets. The bytes after them
    /// are truncated.
    pub(crate) fn resume(path: &Path, tokens: u64, learnt: u64) -> io::Result<Self> {
        let mut file = File::options().read(true).write(true).open(path)?;
        if file.metadata()?.len() < tokens {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.set_len(tokens)?;
        file.seek(SeekFrom::End(0))?;
        let out = BufWriter::new(file);
        Ok(Self { out, learnt })
    }

    /// Appends the targets among some tokens. If `begins` is set, a document begins with the first of them.
    pub(crate) fn write(&mut self, learnt: &[bool], begins: bool) -> io::Result<()> {
        let mut bytes: Vec<u8> = learnt.iter().map(|&it| u8::from(it) * LEARNT).collect();
        if let Some(first) = bytes.first_mut().filter(|_| begins) {
            *first |= BEGINS;
        }
        self.learnt += learnt.iter().filter(|&&it| it).count() as u64;
        self.out.write_all(&bytes)
    }

    /// The number of targets written so far.
    pub(crate) fn learnt(&self) -> u64 {
        self.learnt
    }

    /// Flushes the mask and syncs it to disk.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.out.flush()?;
        self.out.get_ref().sync_all()
    }
}
