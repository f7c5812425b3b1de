//! Reader for a text file: one document in blocks.

use emberlm_tokenizer::Tokenizer;

use super::text_blocks::{Block, TextBlocks};
use super::{DocumentChunk, Documents, Input, LeftOut};
use crate::DataError;

/// The target size of a block. A block is longer if there is no place to cut it.
const BLOCK_BYTES: usize = 256 << 10;

/// The blocks of a text as chunks of one document.
pub(super) struct Text<'a> {
    blocks: TextBlocks<'a>,
    begins: bool,
    left_out: LeftOut,
}

impl<'a> Text<'a> {
    pub(super) fn open(
        input: &'a Input,
        tokenizer: Option<&'a Tokenizer>,
    ) -> Result<Self, DataError> {
        Ok(Self {
            blocks: TextBlocks::open(input, tokenizer, BLOCK_BYTES)?,
            begins: true,
            left_out: LeftOut::default(),
        })
    }
}

impl Documents for Text<'_> {
    fn next_chunk(&mut self) -> Result<Option<DocumentChunk>, DataError> {
        let block = self.blocks.next_block()?;
        Ok(block.map(
            |Block {
                 text,
                 cut_inexactly,
             }| DocumentChunk {
                text,
                cut_inexactly,
                begins: std::mem::take(&mut self.begins),
                record: 1,
            },
        ))
    }

    fn bytes_read(&self) -> u64 {
        self.blocks.bytes_read()
    }

    fn left_out(&self) -> &LeftOut {
        &self.left_out
    }
}
