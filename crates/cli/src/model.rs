//! The MODEL of a command: opened, with warnings about damaged checkpoints.

use std::path::Path;

use burn::tensor::Device;
use emberlm_checkpoint::{Model, ModelError};
use emberlm_kernels::{Backend, memory};
use emberlm_model::{Decoder, WeightFormat};
use emberlm_tokenizer::Tokenizer;

use crate::error::{CliError, warn};

/// Opens the model at `path` and warns about newer checkpoints that are damaged.
///
/// # Errors
/// [`Model::open`]'s.
pub fn open(path: &Path) -> Result<Model, CliError> {
    let model = Model::open(path)?;
    for damaged in model.passed_over() {
        warn(&format!("{damaged}; using the one before"));
    }
    Ok(model)
}

/// The decoder with its weights in a format. The memory that packing frees returns to the system, since generation needs little.
///
/// # Errors
/// The weights cannot be read.
pub fn decoder_in<B: Backend>(
    model: &Model,
    weights: WeightFormat,
    device: &Device<B>,
) -> Result<Decoder<B>, CliError> {
    let load = || Ok(model.decoder(device)?.with_weights(weights));
    match weights {
        WeightFormat::F32 => load(),
        WeightFormat::Packed(_) => memory::returning_freed(load),
    }
}

/// The tokenizer of a command that also takes token ids in the place of text.
///
/// # Errors
/// The model at `path` has none.
pub fn needed<'a>(
    tokenizer: Option<&'a Tokenizer>,
    path: &Path,
) -> Result<&'a Tokenizer, CliError> {
    tokenizer.ok_or_else(|| {
        let path = path.to_owned();
        CliError::new(ModelError::NoTokenizer { path }.to_string())
            .hint("give the prompt as token ids: --tokens 1,2,3")
    })
}
