//! The files of a dataset folder, for the reference documentation.

use emberlm_tokenizer::TOKENIZER_FILE;
use schemars::{Schema, schema_for};

use crate::block_hashes::{BLOCKS_FILE, OnDisk};
use crate::manifest::Manifest;
use crate::not_a_dataset::MANIFEST_FILE;
use crate::shard::{HEADER_BYTES, TokenWidth};

/// The documentation of a file.
#[derive(Clone, Debug)]
pub struct FileFormat {
    /// The file's name, or a pattern.
    pub name: String,
    /// The content, in a phrase.
    pub content: String,
    /// The fields, if the file is JSON of this program.
    pub schema: Option<Schema>,
}

impl FileFormat {
    /// A file without documented fields.
    pub fn new(name: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            content: content.into(),
            schema: None,
        }
    }

    /// The file with the documentation of its fields.
    #[must_use]
    pub fn with_schema(mut self, schema: Schema) -> Self {
        self.schema = Some(schema);
        self
    }
}

/// The files of a dataset folder.
pub fn dataset_files() -> Vec<FileFormat> {
    let magic = |width: TokenWidth| width.signature().0;
    let shards = format!(
        "token ids in llm.c's layout: a header of {} `i32` (magic number {} for `u16`, {} for `u32`; version; number of \
         tokens), then the ids, little-endian. Each document begins with an end-of-text token. Adopted nanoGPT files \
         have no header",
        HEADER_BYTES / 4,
        magic(TokenWidth::U16),
        magic(TokenWidth::U32),
    );
    vec![
        FileFormat::new(MANIFEST_FILE, "the manifest, written last")
            .with_schema(schema_for!(Manifest)),
        FileFormat::new(
            BLOCKS_FILE,
            "[block hashes](#block-hashes) of files of more than 1 MiB",
        )
        .with_schema(schema_for!(OnDisk)),
        FileFormat::new(TOKENIZER_FILE, "the tokenizer, if it is a file"),
        FileFormat::new("SPLIT_NNNNN.bin", format!("a shard: {shards}")),
        FileFormat::new(
            "SPLIT_NNNNN.mask",
            "for conversations, the mask of a shard: one byte per token, 1 if the token is a target of the loss, plus 2 if a \
             document begins with it",
        ),
    ]
}
