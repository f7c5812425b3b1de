//! The size of an epoch of a configuration's data.

use emberlm_model::ModelKind;

use crate::config::RunConfig;
use crate::data::TrainingData;
use crate::error::TrainError;

/// The size of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochSize {
    /// Training tokens, or records.
    pub size: u64,
    /// Those of one sequence.
    pub of_sequence: u64,
}

/// The size of an epoch of a configuration's data.
///
/// # Errors
/// The data cannot be opened, or the sequences are too long.
pub fn epoch_size(config: &RunConfig) -> Result<EpochSize, TrainError> {
    if let Some(records) = config.train.objective.objective().records(config)? {
        let size = records as u64;
        let of_sequence = 1;
        return Ok(EpochSize { size, of_sequence });
    }
    Ok(EpochSize {
        size: TrainingData::open(&config.data)?.train_tokens(),
        of_sequence: sequence_tokens(config)? as u64,
    })
}

/// The tokens of a sequence of a run on datasets of tokens.
pub(crate) fn sequence_tokens(config: &RunConfig) -> Result<usize, TrainError> {
    let train = &config.train;
    match config.model.kind() {
        ModelKind::Decoder | ModelKind::Encoder => train.sequence_tokens(config.model.seq_len),
        ModelKind::EncoderDecoder => Ok(train.source_tokens()),
    }
}
