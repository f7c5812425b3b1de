//! `dataset.blocks.json`: the block hashes of a dataset's files, which allow part of a file to be verified when it is
//! first read.
//!
//! The file is stored next to the manifest rather than in it, so that programs without support for it can still read
//! the dataset. The block hashes of each file combine to its BLAKE3 in the manifest. Files of at most one block are
//! not listed. If every file has at most one block, `dataset.blocks.json` does not exist.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::DataError;
use crate::manifest::write_aside;
use crate::shard::{BLOCK_BYTES, BlockHashes};

/// The file's name in a dataset directory.
pub(crate) const BLOCKS_FILE: &str = "dataset.blocks.json";

/// The temporary file name used while writing.
const BLOCKS_ASIDE: &str = ".dataset.blocks.json.partial";

/// The value of `kind`.
const KIND: &str = "emberlm block hashes";

/// The only supported format version.
const FORMAT: u32 = 1;

/// The block hashes of a dataset's files, by file name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DatasetBlocks(BTreeMap<String, BlockHashes>);

/// The contents of the file.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "BlockHashFile")]
pub(crate) struct OnDisk {
    /// Always `emberlm block hashes`.
    kind: String,
    /// The format version.
    format: u32,
    /// The size of a block: 1,048,576 bytes.
    block_bytes: u64,
    /// The concatenated block hashes of each file in hexadecimal.
    files: BTreeMap<String, String>,
}

impl DatasetBlocks {
    /// Adds the hashes of the file `name`.
    pub(crate) fn add(&mut self, name: &str, blocks: BlockHashes) {
        if !blocks.is_empty() {
            self.0.insert(name.to_owned(), blocks);
        }
    }

    /// Adds the hashes of `other`.
    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Returns the hashes of the file `name`, if available.
    pub(crate) fn of(&self, name: &str) -> Option<&BlockHashes> {
        self.0.get(name)
    }

    /// Reads the block hashes of the dataset in `folder`. Returns no hashes if the file does not exist, as in
    /// datasets written by earlier versions.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is invalid, or has another format.
    pub(crate) fn read(folder: &Path) -> Result<Self, DataError> {
        let path = folder.join(BLOCKS_FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                let reason = "not UTF-8".to_owned();
                return Err(DataError::BlockHashes { path, reason });
            }
            Err(error) => return Err(DataError::io("read", &path)(error)),
        };
        Self::parse(&text).map_err(|reason| DataError::BlockHashes { path, reason })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let found: OnDisk = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if (found.kind.as_str(), found.format, found.block_bytes) != (KIND, FORMAT, BLOCK_BYTES) {
            return Err(format!(
                "`kind`, `format` and `block_bytes` must be {KIND:?}, {FORMAT} and {BLOCK_BYTES}"
            ));
        }
        let hashes = found.files.into_iter().map(|(name, hex)| {
            let blocks = BlockHashes::from_hex(&hex);
            let blocks =
                blocks.ok_or_else(|| format!("`{name}` is not a list of BLAKE3 hashes"))?;
            Ok((name, blocks))
        });
        hashes.collect::<Result<_, String>>().map(Self)
    }

    /// Writes the hashes into `folder` and syncs them to disk. Removes an existing file if there are no hashes.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), DataError> {
        let path = folder.join(BLOCKS_FILE);
        if self.0.is_empty() {
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    Err(DataError::io("remove", &path)(error))
                }
                _ => Ok(()),
            };
        }
        let hex = |(name, blocks): (&String, &BlockHashes)| (name.clone(), blocks.to_hex());
        let on_disk = OnDisk {
            kind: KIND.to_owned(),
            format: FORMAT,
            block_bytes: BLOCK_BYTES,
            files: self.0.iter().map(hex).collect(),
        };
        write_aside(&on_disk, &path, &folder.join(BLOCKS_ASIDE))
    }
}
