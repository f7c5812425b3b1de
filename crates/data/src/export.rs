//! Export of a dataset as other programs' token files.
//!
//! | format | files | tokens |
//! |---|---|---|
//! | nanoGPT | `train.bin`, `val.bin` | `u16`, no header |
//! | llm.c, modded-nanogpt | `NAME_train_000000.bin`, … | the same shard format under other names |
//! | NumPy | `train.npy`, `val.npy` | one array of `u16` or `u32` each; `train_mask.npy`, `val_mask.npy` of booleans |

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::shard::{HashedFile, LEARNT, check_shard_tokens};
use crate::{DEFAULT_SHARD_TOKENS, DataError, Dataset, ShardWriter, Split, TokenWidth};

emberlm_system::named! {
    /// The format to export.
    pub enum ExportFormat {
        /// Token files of nanoGPT.
        NanoGpt = "nanogpt",
        /// Token files of llm.c and modded-nanogpt.
        LlmC = "llmc",
        /// NumPy arrays.
        Npy = "npy",
    }
}

/// Options of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    /// The format.
    pub format: ExportFormat,
    /// The prefix of llm.c's file names.
    pub name: String,
    /// The maximum number of tokens per llm.c file, 1 to 2,147,483,647.
    pub shard_tokens: u64,
}

/// A file written by an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The file name.
    pub file: String,
    /// The number of tokens that it holds, or that it masks.
    pub tokens: u64,
}

impl ExportFormat {
    /// Returns true if an export in this format can produce a file with this name.
    pub fn writes(self, file: &str) -> bool {
        let named = |ending: &str| {
            Split::ALL
                .iter()
                .any(|split| file == format!("{split}{ending}"))
        };
        match self {
            Self::NanoGpt => named(".bin"),
            Self::Npy => named(".npy") || named("_mask.npy"),
            Self::LlmC => {
                let stem = file
                    .strip_suffix(".bin")
                    .and_then(|stem| stem.rsplit_once('_'));
                stem.is_some_and(|(stem, number)| {
                    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
                    let split = |split: &Split| stem.ends_with(&format!("_{split}"));
                    number.len() == 6 && digits && Split::ALL.iter().any(split)
                })
            }
        }
    }
}

impl ExportOptions {
    /// Options to export the dataset in `folder` as `format`, with shards of the default length.
    pub fn new(format: ExportFormat, folder: &Path) -> Self {
        let name = folder
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        Self {
            format,
            name: name.unwrap_or_else(|| "dataset".to_owned()),
            shard_tokens: DEFAULT_SHARD_TOKENS,
        }
    }

    fn check(&self) -> Result<(), DataError> {
        if Path::new(&self.name).file_name() != Some(self.name.as_ref()) {
            return Err(DataError::Value {
                field: "name",
                value: self.name.clone(),
                rule: "must be a valid prefix of a file name",
            });
        }
        check_shard_tokens(self.shard_tokens)
    }
}

/// Writes the splits of `dataset` that have tokens into `folder`, which must exist and be empty. `progress` receives
/// the number of bytes read since the last call. Lengths, ids and hashes of the input are verified.
///
/// # Errors
/// [`DataError::Value`] if an option is out of range. [`DataError::NotExportable`] if the format cannot represent the
/// dataset: nanoGPT ids have 16 bits, and neither nanoGPT nor llm.c supports masks. Fails if the dataset is damaged
/// or a file cannot be written; files written until then remain.
pub fn export(
    dataset: &Dataset,
    options: &ExportOptions,
    folder: &Path,
    progress: &dyn Fn(u64),
) -> Result<Vec<Exported>, DataError> {
    options.check()?;
    let width = TokenWidth::for_vocab(dataset.tokenizer().vocab_size());
    check(dataset, options.format, width)?;
    let mut export = Export {
        dataset,
        options,
        folder,
        width,
        progress,
        written: Vec::new(),
    };
    for split in Split::ALL {
        if dataset.manifest().split(split).tokens == 0 {
            continue;
        }
        match options.format {
            ExportFormat::NanoGpt => export.one_file(split, format!("{split}.bin"))?,
            ExportFormat::Npy => {
                export.one_file(split, format!("{split}.npy"))?;
                export.mask(split)?;
            }
            ExportFormat::LlmC => export.shards(split)?,
        }
    }
    Ok(export.written)
}

fn check(dataset: &Dataset, format: ExportFormat, width: TokenWidth) -> Result<(), DataError> {
    let not_exportable = |reason: String| {
        Err(DataError::NotExportable {
            folder: dataset.folder().to_owned(),
            format: format.name(),
            reason,
        })
    };
    let manifest = dataset.manifest();
    let masked = Split::ALL
        .iter()
        .any(|&split| manifest.split(split).is_masked());
    match format {
        ExportFormat::NanoGpt if width == TokenWidth::U32 => {
            let tokenizer = dataset.tokenizer();
            let (kind, size) = (tokenizer.kind(), tokenizer.vocab_size());
            not_exportable(format!("16 bits cannot represent the {size} ids of {kind}"))
        }
        ExportFormat::NanoGpt | ExportFormat::LlmC if masked => {
            not_exportable("it has no masks, and the dataset has".to_owned())
        }
        _ => Ok(()),
    }
}

/// State of an export.
struct Export<'a> {
    dataset: &'a Dataset,
    options: &'a ExportOptions,
    folder: &'a Path,
    width: TokenWidth,
    progress: &'a dyn Fn(u64),
    written: Vec<Exported>,
}

impl Export<'_> {
    /// Writes the whole split into one file.
    fn one_file(&mut self, split: Split, file: String) -> Result<(), DataError> {
        let path = self.folder.join(&file);
        let failed = |error| DataError::io("write", &path)(error);
        let tokens = self.dataset.manifest().split(split).tokens;
        let mut out = BufWriter::new(File::create(&path).map_err(failed)?);
        if self.options.format == ExportFormat::Npy {
            let descr = match self.width {
                TokenWidth::U16 => "<u2",
                TokenWidth::U32 => "<u4",
            };
            write_npy_header(&mut out, descr, tokens).map_err(failed)?;
        }
        let mut bytes = Vec::new();
        self.dataset.each_block(split, self.progress, |ids| {
            bytes.clear();
            for id in ids {
                // Ids are below the vocabulary size, which determines the width, so the omitted bytes are 0.
                bytes.extend_from_slice(&id.to_le_bytes()[..self.width.bytes() as usize]);
            }
            out.write_all(&bytes).map_err(failed)
        })?;
        self.close(out, &path)?;
        self.written.push(Exported { file, tokens });
        Ok(())
    }

    /// Writes the masks of the split as one boolean array. It is true for all tokens of shards without a mask.
    fn mask(&mut self, split: Split) -> Result<(), DataError> {
        if !self.dataset.manifest().split(split).is_masked() {
            return Ok(());
        }
        let file = format!("{split}_mask.npy");
        let path = self.folder.join(&file);
        let failed = |error| DataError::io("write", &path)(error);
        let manifest = self.dataset.manifest().split(split);
        let mut out = BufWriter::new(File::create(&path).map_err(failed)?);
        write_npy_header(&mut out, "|b1", manifest.tokens).map_err(failed)?;
        for shard in &manifest.shards {
            let Some(mask) = &shard.mask else {
                let all = io::repeat(LEARNT);
                io::copy(&mut io::Read::take(all, shard.tokens), &mut out).map_err(failed)?;
                continue;
            };
            let mut source = HashedFile::open(&self.dataset.folder().join(&mask.file))?;
            let damaged = |source: &HashedFile, reason| DataError::Shard {
                path: source.path().to_owned(),
                reason,
            };
            if source.bytes() != shard.tokens {
                let (bytes, tokens) = (source.bytes(), shard.tokens);
                let reason = format!("{bytes} bytes, but its shard has {tokens} tokens");
                return Err(damaged(&source, reason));
            }
            loop {
                let bytes = source.next(u64::MAX)?;
                if bytes.is_empty() {
                    break;
                }
                let learnt: Vec<u8> = bytes.iter().map(|byte| byte & LEARNT).collect();
                out.write_all(&learnt).map_err(failed)?;
                (self.progress)(bytes.len() as u64);
            }
            let (found, stated) = (source.hashes().blake3, &mask.blake3);
            if found != *stated {
                let reason = format!("its BLAKE3 is {found}, but the manifest says {stated}");
                return Err(damaged(&source, reason));
            }
        }
        self.close(out, &path)?;
        let tokens = manifest.tokens;
        self.written.push(Exported { file, tokens });
        Ok(())
    }

    /// Writes the split as llm.c shards.
    fn shards(&mut self, split: Split) -> Result<(), DataError> {
        let mut shards = ShardSequence {
            stem: format!("{}_{split}", self.options.name),
            folder: self.folder,
            width: self.width,
            most: self.options.shard_tokens,
            open: None,
            written: Vec::new(),
        };
        let write = |ids: &[u32]| shards.write(ids);
        self.dataset.each_block(split, self.progress, write)?;
        shards.close()?;
        self.written.extend(shards.written);
        Ok(())
    }

    /// Flushes a file and syncs it to disk.
    fn close(&self, out: BufWriter<File>, path: &Path) -> Result<(), DataError> {
        let close = || {
            out.into_inner()
                .map_err(io::IntoInnerError::into_error)?
                .sync_all()
        };
        close().map_err(DataError::io("write", path))
    }
}

/// Writes llm.c shards in sequence.
struct ShardSequence<'a> {
    stem: String,
    folder: &'a Path,
    width: TokenWidth,
    /// The maximum number of tokens per file.
    most: u64,
    /// The writer of the last file in `written`.
    open: Option<ShardWriter<File>>,
    written: Vec<Exported>,
}

impl ShardSequence<'_> {
    fn write(&mut self, mut ids: &[u32]) -> Result<(), DataError> {
        while !ids.is_empty() {
            let mut writer = match self.open.take() {
                Some(open) => open,
                None => {
                    let file = format!("{}_{:06}.bin", self.stem, self.written.len());
                    let path = self.folder.join(&file);
                    self.written.push(Exported { file, tokens: 0 });
                    ShardWriter::create(&path, self.width).map_err(DataError::io("write", &path))?
                }
            };
            let Some(shard) = self.written.last_mut() else {
                return Ok(());
            };
            let room = usize::try_from(self.most - shard.tokens).unwrap_or(usize::MAX);
            let (head, tail) = ids.split_at(room.min(ids.len()));
            let path = self.folder.join(&shard.file);
            writer.write(head).map_err(DataError::io("write", &path))?;
            shard.tokens += head.len() as u64;
            let full = shard.tokens == self.most;
            self.open = Some(writer);
            if full {
                self.close()?;
            }
            ids = tail;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), DataError> {
        if let (Some(writer), Some(shard)) = (self.open.take(), self.written.last()) {
            let path = self.folder.join(&shard.file);
            writer.finish().map_err(DataError::io("write", &path))?;
        }
        Ok(())
    }
}

/// Writes the header of a one-dimensional `.npy` array with `len` elements of NumPy type `descr`, in version 1.0 of
/// the format. The bytes are the same as those of `numpy.save`.
fn write_npy_header(out: &mut impl Write, descr: &str, len: u64) -> io::Result<()> {
    const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";
    /// The data begins at a multiple of this many bytes.
    const ALIGNMENT: usize = 64;
    /// `numpy.save` reserves space for a length of this many digits.
    const LENGTH_DIGITS: usize = 21;

    let digits = len.to_string();
    let room = LENGTH_DIGITS - digits.len();
    let dictionary = format!(
        "{{'descr': '{descr}', 'fortran_order': False, 'shape': ({digits},), }}{:room$}",
        ""
    );
    // The header length is a `u16`, and the header ends with a line feed.
    let before = MAGIC.len() + size_of::<u16>() + dictionary.len() + 1;
    let padding = ALIGNMENT - before % ALIGNMENT;
    let header = format!("{dictionary}{:padding$}\n", "");
    out.write_all(MAGIC)?;
    out.write_all(&(header.len() as u16).to_le_bytes())?;
    out.write_all(header.as_bytes())
}
