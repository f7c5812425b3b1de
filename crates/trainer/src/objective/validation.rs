//! The validation data of a run.

use std::sync::Arc;

use emberlm_data::{DataError, Dataset, EvalChoice, Split, TokenSplit, Windows};
use emberlm_model::TransformerConfig;

use super::next_token::NextToken;
use super::sample::SamplePrompt;
use super::{
    ClassScores, PairSet, PolicyScores, PreferenceScores, RecordSet, RewardValidation, WindowTask,
};
use crate::data::TrainingData;
use crate::report::metrics::Metric;

/// The validation data of a run. Every evaluation uses the same tokens.
#[derive(Clone)]
pub(crate) enum Validation {
    /// The validation splits of datasets of tokens.
    Windows {
        sets: Vec<ValidationSet>,
        task: Arc<dyn WindowTask>,
        /// Tokens of a training sequence. An evaluation's batch has as many tokens as its number of these.
        sequence: usize,
    },
    /// Labelled texts.
    Labelled { records: RecordSet, labels: usize },
    /// Pairs of texts.
    Pairs(RecordSet),
    /// Pairs of a chosen and a rejected completion.
    Preferences(PairSet),
    /// Prompts, whose completions are rewarded.
    Rewards(RewardValidation),
}

/// The validation split of one dataset.
#[derive(Clone)]
pub(crate) struct ValidationSet {
    pub(crate) name: String,
    pub(crate) windows: Windows,
    pub(crate) weight: f64,
}

impl Validation {
    /// The validation splits of `data`, as `emberlm eval` evaluates a decoder on them
    /// ([`emberlm_data::Dataset::evaluation_windows`]). Training sequences have `sequence` tokens.
    pub(crate) fn of_decoder(
        data: &TrainingData,
        model: &TransformerConfig,
        sequence: usize,
    ) -> Result<Self, DataError> {
        let choice = EvalChoice {
            packing: None,
            seq_len: None,
            context: model.seq_len(),
            isolates: model.check_documents().is_ok(),
        };
        let windows = |dataset: &Dataset| dataset.evaluation_windows(Split::Val, choice);
        Self::of_datasets(data, Arc::new(NextToken), sequence, windows)
    }

    /// The validation splits of `data` in windows of `window` tokens, on which `task` is solved with other random numbers
    /// than in training.
    pub(crate) fn of_task(
        data: &TrainingData,
        task: &dyn WindowTask,
        window: usize,
    ) -> Result<Self, DataError> {
        let windows = |dataset: &Dataset| Windows::stream(dataset.split(Split::Val)?, window);
        Self::of_datasets(data, task.of_validation(), window, windows)
    }

    fn of_datasets(
        data: &TrainingData,
        task: Arc<dyn WindowTask>,
        sequence: usize,
        windows: impl Fn(&Dataset) -> Result<Windows, DataError>,
    ) -> Result<Self, DataError> {
        let set = |(dataset, weight): (&Dataset, f64)| {
            Ok(ValidationSet {
                name: dataset.folder().display().to_string(),
                windows: windows(dataset)?,
                weight,
            })
        };
        Ok(Self::Windows {
            sets: data.weighted().map(set).collect::<Result<_, DataError>>()?,
            task,
            sequence,
        })
    }

    /// The validation splits of datasets of tokens.
    pub(crate) fn splits(&self) -> impl Iterator<Item = &TokenSplit> {
        self.sets().iter().map(|set| set.windows.split())
    }

    pub(crate) fn sets(&self) -> &[ValidationSet] {
        match self {
            Self::Windows { sets, .. } => sets,
            Self::Labelled { .. } | Self::Pairs(_) | Self::Preferences(_) | Self::Rewards(_) => &[],
        }
    }

    /// The prompt of the first record, of at most `most` tokens, if the data consists of prompts and answers.
    ///
    /// # Errors
    /// The data cannot be read.
    pub(crate) fn prompt(&self, most: usize) -> Result<Option<SamplePrompt>, DataError> {
        match self {
            Self::Windows { sets, .. } => match sets.first() {
                Some(set) => SamplePrompt::of_split(set.windows.split(), most),
                None => Ok(None),
            },
            Self::Preferences(pairs) => Ok(pairs.prompt(most)),
            Self::Labelled { .. } | Self::Pairs(_) | Self::Rewards(_) => Ok(None),
        }
    }

    /// Returns true if an evaluation samples texts.
    pub(crate) fn samples(&self) -> bool {
        matches!(self, Self::Rewards(_))
    }

    /// The metrics of an evaluation in addition to the loss.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        match self {
            Self::Labelled { .. } => ClassScores::metrics(),
            Self::Preferences(pairs) => PreferenceScores::metrics(pairs.loss().form()),
            Self::Rewards(validation) => PolicyScores::metrics(validation.task.config.beta > 0.0),
            Self::Windows { .. } | Self::Pairs(_) => Vec::new(),
        }
    }

    /// Input tokens of a validation of at most `max_tokens` of each dataset.
    pub(crate) fn tokens(&self, max_tokens: Option<u64>) -> u64 {
        let limited = |tokens: u64| max_tokens.map_or(tokens, |max| tokens.min(max));
        match self {
            Self::Windows { .. } => {
                let targets = self.splits().map(|split| split.len().saturating_sub(1));
                targets.map(limited).sum()
            }
            Self::Labelled { records, .. } | Self::Pairs(records) => limited(records.tokens()),
            Self::Preferences(pairs) => limited(pairs.tokens()),
            Self::Rewards(validation) => limited(validation.prompts.tokens()),
        }
    }
}
