//! The texts of a corpus one after another, for those who do not make a dataset of them.

use std::path::PathBuf;

use emberlm_tokenizer::Tokenizer;

use crate::{DataError, InputOptions, expand};

/// Calls `visit` with the texts of `inputs` in their order, which are expanded and read as [`crate::prepare()`] does. A
/// long text comes in parts, cut where `tokenizer` makes the same tokens of them.
///
/// # Errors
/// Fails if an input cannot be read, and whatever `visit` returns.
pub fn for_each_text<E: From<DataError>>(
    inputs: &[PathBuf],
    options: &InputOptions,
    tokenizer: &Tokenizer,
    mut visit: impl FnMut(String) -> Result<(), E>,
) -> Result<(), E> {
    for input in expand(inputs, options)? {
        let mut documents = input.open(options, Some(tokenizer))?;
        while let Some(piece) = documents.next_piece()? {
            visit(piece.text)?;
        }
    }
    Ok(())
}
