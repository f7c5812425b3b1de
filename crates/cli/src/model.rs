//! The MODEL of a command: opened, with warnings about damaged checkpoints.

use std::path::Path;

use burn::tensor::Device;
use emberlm_checkpoint::{Model, ModelError};
use emberlm_generate::SamplingDefaults;
use emberlm_kernels::{Backend, memory};
use emberlm_model::{Decoder, WeightFormat};
use emberlm_serve::load;
use emberlm_tokenizer::Tokenizer;
use emberlm_trainer::fit::HeldWeights;

use crate::error::{CliError, warn};
use crate::progress;

/// Opens the model at `path`, with a sign on a terminal while its files are read and hashed, and warns about newer checkpoints that are damaged.
///
/// # Errors
/// [`Model::open`]'s.
pub fn open(path: &Path) -> Result<Model, CliError> {
    let sign = progress::loading(path);
    let model = Model::open(path)?;
    drop(sign);
    for damaged in model.passed_over() {
        warn(&format!("{damaged}; using the one before"));
    }
    Ok(model)
}

/// Opens the model that a run continues.
///
/// # Errors
/// [`Model::open`]'s, or its weights are stored packed: they have no gradients.
pub fn open_to_train(path: &Path) -> Result<Model, CliError> {
    let model = open(path)?;
    match model.weight_format() {
        WeightFormat::F32 => Ok(model),
        packed => {
            let (path, format) = (path.display(), packed.name());
            let message =
                format!("{path}: the weights are stored in {format}, which is not trained");
            Err(CliError::new(message)
                .hint("give the model that it was exported from")
                .hint(format!(
                    "or unpack it, rounded as it is: emberlm export {path} --weights f32 --out MODEL"
                )))
        }
    }
}

/// The settings that the model's `generation_config.json` recommends; warns about those that cannot be used.
pub fn sampling_defaults(model: &Model) -> SamplingDefaults {
    let (defaults, ignored) = load::sampling_defaults(model);
    ignored.iter().for_each(|ignored| warn(ignored));
    defaults
}

/// The weights of a model in the format that is asked for, or else as they are stored.
pub fn held_weights(model: &Model, asked: Option<WeightFormat>) -> HeldWeights {
    let stored = model.weight_format();
    HeldWeights {
        format: asked.unwrap_or(stored),
        stored,
    }
}

/// The decoder with its weights in the format that is asked for, or else as they are stored, with a sign on a terminal while
/// they are read. The memory that packing frees returns to the system, since generation needs little.
///
/// # Errors
/// The weights cannot be read.
pub fn decoder_in<B: Backend>(
    model: &Model,
    weights: Option<WeightFormat>,
    device: &Device<B>,
) -> Result<Decoder<B>, CliError> {
    let _sign = progress::loading(model.path());
    let format = held_weights(model, weights).format;
    let load = || Ok(model.decoder_in(format, device)?);
    match format {
        WeightFormat::F32 => load(),
        WeightFormat::Packed(_) | WeightFormat::PackedLayers(_) => memory::returning_freed(load),
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
