//! The texts of a corpus one after another, for those who do not make a dataset of them.

use std::path::PathBuf;

use emberlm_tokenizer::Tokenizer;

use crate::DataError;
use crate::corpus::expand;
use crate::text_blocks::{BLOCK_BYTES, TextBlocks};

/// Calls `visit` with the texts of `inputs` in their order: files, or folders of them, as [`crate::prepare`] takes them. A
/// long text comes in parts, cut where `tokenizer` makes the same tokens of them.
///
/// # Errors
/// Where an input cannot be read or is not UTF-8, and whatever `visit` returns.
pub fn for_each_text<E: From<DataError>>(
    inputs: &[PathBuf],
    tokenizer: &Tokenizer,
    mut visit: impl FnMut(String) -> Result<(), E>,
) -> Result<(), E> {
    for document in expand(inputs)? {
        let mut blocks = TextBlocks::open(&document.path, Some(tokenizer), BLOCK_BYTES)?;
        while let Some(text) = blocks.next_block()? {
            visit(text)?;
        }
    }
    Ok(())
}
