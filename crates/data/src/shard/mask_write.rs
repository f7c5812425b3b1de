//! Writing a mask.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use super::mask::{BEGINS, LEARNT};

/// Writes which tokens of a shard are to be learnt and which a document begins with, a byte per token.
pub(crate) struct MaskWriter {
    out: BufWriter<File>,
    learnt: u64,
}

impl MaskWriter {
    /// Begins the mask `path`, replacing what is there.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let out = BufWriter::new(File::create(path)?);
        Ok(Self { out, learnt: 0 })
    }

    /// Continues the mask `path` after its first `tokens` tokens, of which `learnt` are targets. The bytes
    /// after them are cut off.
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

    /// Appends whether each of some tokens is to be learnt, and whether a document begins with the first of them.
    pub(crate) fn write(&mut self, learnt: &[bool], begins: bool) -> io::Result<()> {
        let mut bytes: Vec<u8> = learnt.iter().map(|&it| u8::from(it) * LEARNT).collect();
        if let Some(first) = bytes.first_mut().filter(|_| begins) {
            *first |= BEGINS;
        }
        self.learnt += learnt.iter().filter(|&&it| it).count() as u64;
        self.out.write_all(&bytes)
    }

    /// The number of tokens that are to be learnt so far.
    pub(crate) fn learnt(&self) -> u64 {
        self.learnt
    }

    /// Waits until what has been written is on the disk.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.out.flush()?;
        self.out.get_ref().sync_all()
    }
}
