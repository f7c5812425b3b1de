//! Draft models of speculative decoding.

use std::path::Path;

use emberlm_checkpoint::{Model, ModelKind};
use emberlm_tokenizer::Tokenizer;

use crate::error::CliError;
use crate::model;

/// Opens the draft model at `path` for the model at `of`, whose tokenizer it must have.
///
/// # Errors
/// There is no decoder at `path`, or its tokenizer is another one.
pub fn open(path: &Path, of: &Path, tokenizer: Option<&Tokenizer>) -> Result<Model, CliError> {
    let draft = model::open(path)?.of_kind(ModelKind::Decoder)?;
    let other = draft.tokenizer()?;
    match (tokenizer, other) {
        (Some(tokenizer), Some(other)) if !tokenizer.agrees_with(&other) => {
            let (path, model) = (path.display(), of.display());
            let message = format!("{path} has a different vocabulary than {model}");
            Err(CliError::new(message).hint("a draft model must have the model's tokenizer"))
        }
        _ => Ok(draft),
    }
}
