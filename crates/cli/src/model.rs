//! Opens the MODEL argument of commands, with warnings about damaged checkpoints.

use std::path::Path;

use burn::tensor::Device;
use emberlm_checkpoint::{CheckpointError, EncoderModel, Model, ModelError};
use emberlm_generate::SamplingDefaults;
use emberlm_kernels::{Backend, PackedFormat, memory};
use emberlm_model::{LoraConfig, Transformer, WeightFormat, gguf};
use emberlm_tokenizer::Tokenizer;
use emberlm_trainer::fit::HeldWeights;

use crate::error::{CliError, warn};
use crate::progress;
use crate::shell::shell_path;
use crate::weights_arg::Formats;

/// Opens the model at `path`, and warns about newer checkpoints that are damaged. Shows a spinner on a
/// terminal while the files are read and hashed.
///
/// # Errors
/// Returns the errors of [`Model::open`].
pub fn open(path: &Path) -> Result<Model, CliError> {
    let spinner = progress::loading(path);
    let model = Model::open(path)?;
    drop(spinner);
    warn_passed_over(model.passed_over());
    warn_ignored(path, &model.warnings());
    Ok(model)
}

/// Checks that the weights of the model at `path` can be trained, with the adapter if there is one.
///
/// # Errors
/// The weights are quantized, so they have no gradients, and there is no adapter.
pub fn check_trainable(
    model: &Model,
    path: &Path,
    adapter: Option<&LoraConfig>,
) -> Result<(), CliError> {
    match model.weight_format() {
        _ if adapter.is_some() => Ok(()),
        WeightFormat::F32 => Ok(()),
        packed => {
            let (shown, format) = (path.display(), packed.name());
            let message =
                format!("{shown}: the weights are stored in {format}, which cannot be trained");
            let path = shell_path(path);
            Err(CliError::new(message)
                .hint("train an adapter of it: --set train.adapter.rank=8")
                .hint("or pass the model that it was exported from")
                .hint(format!(
                    "or unpack it, rounded as it is: emberlm export {path} --weights f32 --out MODEL"
                )))
        }
    }
}

/// Reads the files of an encoder that was opened at `path`, with warnings about settings that are ignored.
///
/// # Errors
/// Returns the errors of [`EncoderModel::of`].
pub fn encoder(model: Model, path: &Path) -> Result<EncoderModel, CliError> {
    let model = EncoderModel::of(model)?;
    warn_ignored(path, model.warnings());
    Ok(model)
}

/// Opens the encoder at `path`, with warnings about newer checkpoints that are damaged.
///
/// # Errors
/// Returns the errors of [`EncoderModel::open`].
pub fn open_encoder(path: &Path) -> Result<EncoderModel, CliError> {
    encoder(open(path)?, path)
}

/// Warns about settings in the files of the model at `path` that are ignored.
fn warn_ignored(path: &Path, warnings: &[String]) {
    let (path, is_file) = (path.display(), path.is_file());
    for warning in warnings {
        match is_file {
            true => warn(&format!("{path}: {warning}")),
            false => warn(&format!("{path}/{warning}")),
        }
    }
}

fn warn_passed_over(damaged: &[CheckpointError]) {
    for damaged in damaged {
        warn(&format!("{damaged}; using the previous one"));
    }
}

/// Reads the sampling settings that the model's `generation_config.json` recommends. Warns about unusable
/// ones.
pub fn sampling_defaults(model: &Model) -> SamplingDefaults {
    let (defaults, ignored) = model.sampling_defaults();
    ignored.iter().for_each(|ignored| warn(ignored));
    defaults
}

/// The format of the model's weights for inference: `requested`, or else as they are stored. Weights that are stored in as few
/// bits as requested, or fewer, stay as they are: rounding them again would make them worse, and no smaller. `keeps_packed`
/// states that the backend keeps packed weights packed: others hold them in f32, so they read floating-point numbers as f32.
pub fn inference_weights(
    model: &Model,
    requested: Option<WeightFormat>,
    keeps_packed: bool,
) -> HeldWeights {
    // Weights that cannot be read are an error when they are loaded.
    let stored = match keeps_packed {
        true => model.inference_format().ok(),
        false => None,
    };
    let stored = stored.unwrap_or_else(|| model.weight_format());
    let requested = requested.filter(|&requested| !is_kept(stored, requested));
    HeldWeights {
        format: requested.unwrap_or(stored),
        stored,
    }
}

/// Returns true if weights that are stored in one packed format are not converted to another one, which is no smaller.
fn is_kept(stored: WeightFormat, requested: WeightFormat) -> bool {
    match (stored.layers(), requested.layers()) {
        (Some(stored), Some(requested)) => bits(stored) <= bits(requested),
        _ => false,
    }
}

/// Bits per weight.
fn bits(format: PackedFormat) -> f64 {
    8.0 * format.block_bytes() as f64 / format.block_len() as f64
}

/// Warns if the requested format is not used ([`inference_weights`]).
fn warn_if_kept(model: &Model, requested: Option<WeightFormat>, held: HeldWeights) {
    let Some((requested, kept)) = requested
        .and_then(WeightFormat::layers)
        .zip(held.format.layers())
    else {
        return;
    };
    if requested != kept {
        warn(&format!(
            "--weights {}: the weights stay in {}, as they are stored in {}: {:.1} bits per weight would be no smaller than {:.1}, and less exact",
            requested.name(),
            weights_name(model, held),
            model.path().display(),
            bits(requested),
            bits(kept),
        ));
    }
}

/// The name of the held weights' format. That of a GGUF file's own weights is the file's type, as in llama.cpp.
pub fn weights_name(model: &Model, weights: HeldWeights) -> String {
    let file = model.hugging_face().and_then(|source| source.gguf());
    match file.filter(|_| weights.format == weights.stored) {
        Some(file) => gguf::type_name(file),
        None => weights.format.name().to_owned(),
    }
}

/// The format of the model's weights in memory: `requested`, or else the stored format, in f32 if that is floating point.
pub fn held_weights(model: &Model, requested: Option<WeightFormat>) -> HeldWeights {
    let stored = model.weight_format();
    HeldWeights {
        format: requested.unwrap_or(stored),
        stored,
    }
}

/// Loads the decoder for inference with weights in the requested format, or else as they are stored ([`inference_weights`]).
/// Shows a spinner on a terminal while they are read. Memory freed by quantization returns to the system, since generation
/// needs little.
///
/// # Errors
/// Returns an error if the weights cannot be read, or the model or the backend does not support the format of the caches.
pub fn decoder_in<B: Backend>(
    model: &Model,
    formats: Formats,
    device: &Device<B>,
) -> Result<Transformer<B>, CliError> {
    let Formats {
        weights,
        precision,
        cache,
    } = formats;
    cache.check(model.config())?;
    cache.check_backend::<B>()?;
    if !B::multiplies_in(precision, device) {
        let (backend, name) = (B::name(device), precision.name());
        warn(&format!(
            "{backend} does not support matrix products in {name}; they are computed in f32"
        ));
    }
    let _spinner = progress::loading(model.path());
    let held = inference_weights(model, weights, B::keeps_packed_weights());
    warn_if_kept(model, weights, held);
    let format = held.format;
    let load = || model.decoder_in(format, device);
    let decoder = match format {
        WeightFormat::F32 => load(),
        _ => memory::returning_freed(load),
    };
    let decoder = decoder?.with_fused_adapters().with_precision(precision);
    Ok(decoder.with_cache_format(cache)?)
}

/// Returns the tokenizer of a command that also accepts token ids.
///
/// # Errors
/// Returns an error if the model at `path` has no tokenizer.
pub fn needed<'a>(
    tokenizer: Option<&'a Tokenizer>,
    path: &Path,
) -> Result<&'a Tokenizer, CliError> {
    tokenizer.ok_or_else(|| {
        let path = path.to_owned();
        CliError::new(ModelError::NoTokenizer { path }.to_string())
            .hint("pass the prompt as token ids: --tokens 1,2,3")
    })
}
