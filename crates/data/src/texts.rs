//! Iteration over the texts of a corpus without writing a dataset.

use std::path::PathBuf;

use emberlm_tokenizer::Tokenizer;

use crate::{DataError, InputOptions, expand};

/// Calls `visit` with each text of `inputs` in order. Inputs are expanded and read as in [`crate::prepare()`]. A long
/// text is passed in parts, cut where `tokenizer` produces the same tokens for the parts.
///
/// # Errors
/// Fails if an input cannot be read; returns any error of `visit`.
pub fn for_each_text<E: From<DataError>>(
    inputs: &[PathBuf],
    options: &InputOptions,
    tokenizer: &Tokenizer,
    mut visit: impl FnMut(String) -> Result<(), E>,
) -> Result<(), E> {
    for input in expand(inputs, options)? {
        let mut documents = input.open(options, Some(tokenizer))?;
        while let Some(chunk) = documents.next_chunk()? {
            visit(chunk.text)?;
        }
    }
    Ok(())
}
