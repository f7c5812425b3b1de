//! The size of an epoch of a configuration's data.

use crate::config::{ObjectiveConfig, RunConfig, RunModel};
use crate::data::TrainingData;
use crate::error::TrainError;
use crate::fit::source_tokens;
use crate::objective::{
    ConversationSource, PairSource, PreferenceLoss, PromptSource, RecordSource, Rewards,
};

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
    let (data, train) = (&config.data, &config.train);
    let records = match &train.objective {
        _ if config.reads_conversations() => Some(ConversationSource::read(data)?.train_count()),
        ObjectiveConfig::Classify(objective) => {
            Some(RecordSource::of_labels(data, objective)?.train_count())
        }
        ObjectiveConfig::Seq2seq(objective) => {
            Some(RecordSource::of_pairs(data, objective)?.train_count())
        }
        // Completions are counted.
        ObjectiveConfig::Grpo(objective) => {
            let fields = Rewards::new(&objective.rewards)?.fields();
            let prompts = PromptSource::read(data, &fields)?.train_count();
            let completions = prompts.saturating_mul(objective.group);
            Some(completions.saturating_mul(objective.iterations))
        }
        objective => match PreferenceLoss::of(objective) {
            Some(loss) => Some(PairSource::read(data, loss.form())?.train_count()),
            None => None,
        },
    };
    if let Some(records) = records {
        let size = records as u64;
        let of_sequence = 1;
        return Ok(EpochSize { size, of_sequence });
    }
    Ok(EpochSize {
        size: TrainingData::open(data)?.train_tokens(),
        of_sequence: sequence_tokens(config)? as u64,
    })
}

/// The tokens of a sequence of a run on datasets of tokens.
pub(crate) fn sequence_tokens(config: &RunConfig) -> Result<usize, TrainError> {
    let train = &config.train;
    Ok(match &config.model {
        RunModel::Decoder(model) => train.sequence_tokens(model.seq_len)?,
        RunModel::Encoder(settings) => {
            train.sequence_tokens(settings.positions - settings.first_position)?
        }
        RunModel::EncoderDecoder(_) => source_tokens(train),
    })
}
