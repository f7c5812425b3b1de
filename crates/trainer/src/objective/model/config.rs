//! The models of a run's configuration.

use burn::tensor::Device;
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::{Decoder, LoraConfig, ModelKind, TransformerConfig};

use super::TrainingModel;
use crate::error::TrainError;

/// Builds a model with its initial weights.
pub(crate) fn initial<B: Backend>(
    config: &TransformerConfig,
    seed: u64,
    device: &Device<B>,
) -> TrainingModel<B> {
    match config.kind() {
        ModelKind::Decoder => config.init::<B>(seed, device).into(),
        ModelKind::Encoder => config.init_encoder::<B>(seed, device).into(),
        ModelKind::EncoderDecoder => config.init_encoder_decoder::<B>(seed, device).into(),
    }
}

/// The model with a new adapter over weights in the adapter's format; without an adapter it is unchanged.
///
/// # Errors
/// The adapter's settings do not fit the model.
pub(crate) fn adapted<B: TrainingBackend>(
    decoder: Decoder<B>,
    adapter: Option<&LoraConfig>,
    seed: u64,
) -> Result<Decoder<B>, TrainError> {
    let Some(adapter) = adapter else {
        return Ok(decoder);
    };
    let stored = decoder.weight_format();
    let format = adapter.base_format(stored).unwrap_or(stored);
    Ok(decoder.with_weights(format)?.with_adapter(adapter, seed)?)
}
