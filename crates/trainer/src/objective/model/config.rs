//! Adapters over the model of a run's configuration.

use emberlm_kernels::TrainingBackend;
use emberlm_model::{LoraConfig, Transformer};

use crate::error::TrainError;

/// The model with a new adapter over weights in the adapter's format; without an adapter it is unchanged.
///
/// # Errors
/// The adapter's settings do not fit the model.
pub(crate) fn adapted<B: TrainingBackend>(
    decoder: Transformer<B>,
    adapter: Option<&LoraConfig>,
    seed: u64,
) -> Result<Transformer<B>, TrainError> {
    let Some(adapter) = adapter else {
        return Ok(decoder);
    };
    let stored = decoder.weight_format();
    let format = adapter.base_format(stored).unwrap_or(stored);
    Ok(decoder.with_weights(format)?.with_adapter(adapter, seed)?)
}
