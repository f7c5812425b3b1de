//! The batches of a run: a function of the number of their first sequence.

use std::sync::Arc;

use emberlm_data::{Batch, DataError, Mix, TokenSplit, TrainBatches};

use super::next_token::NextToken;
use super::{HostBatch, PairSet, PromptSet, RecordSet};
use crate::objective::sample::SamplePrompt;

/// The task that a model solves on a window of tokens.
pub(crate) trait WindowTask: Send + Sync {
    /// The batch of windows of which the first has the number `first`. `None` if the task cannot use windows of this
    /// length.
    fn host_batch(&self, batch: Batch, first: u64) -> Option<HostBatch>;

    /// The same task with other random numbers, for the validation split.
    fn of_validation(&self) -> Arc<dyn WindowTask>;
}

/// The training batches of a run.
#[derive(Clone)]
pub(crate) enum TrainSource {
    /// Windows of datasets of tokens.
    Windows {
        batches: TrainBatches,
        task: Arc<dyn WindowTask>,
    },
    /// Labelled texts, pairs of texts, or conversations.
    Records(RecordSet),
    /// Pairs of a chosen and a rejected completion.
    Pairs(PairSet),
    /// Prompts, whose completions are sampled during training.
    Prompts(PromptSet),
}

/// An endless iterator over batches on the host.
pub(crate) type HostBatches<'a> = Box<dyn Iterator<Item = Result<HostBatch, DataError>> + 'a>;

impl TrainSource {
    /// Windows whose next tokens are predicted.
    pub(crate) fn next_token(batches: TrainBatches) -> Self {
        Self::Windows {
            batches,
            task: Arc::new(NextToken),
        }
    }

    /// The same windows with the mix of datasets that `change` returns for theirs. Other data has no mix.
    ///
    /// # Errors
    /// See [`TrainBatches::with_mix`].
    pub(crate) fn with_mix(
        self,
        change: impl FnOnce(Mix) -> Result<Mix, DataError>,
    ) -> Result<Self, DataError> {
        Ok(match self {
            Self::Windows { batches, task } => Self::Windows {
                batches: batches.with_mix(change)?,
                task,
            },
            other => other,
        })
    }

    /// An endless iterator over batches of `count` sequences. The first batch begins at the sequence number `first`, and
    /// each begins `stride` sequences after the one before. `workers` threads read windows ahead.
    pub(crate) fn batches(
        &self,
        first: u64,
        count: usize,
        stride: usize,
        workers: usize,
    ) -> HostBatches<'_> {
        let numbers = (0u64..).map(move |at| first.wrapping_add(at.wrapping_mul(stride as u64)));
        match self {
            Self::Windows { batches, task } => {
                let made = batches.ahead(first, count, stride, workers);
                let batch = |(batch, number): (Result<Batch, DataError>, u64)| match batch {
                    Ok(batch) => task.host_batch(batch, number).map(Ok),
                    Err(error) => Some(Err(error)),
                };
                Box::new(made.zip(numbers).map_while(batch))
            }
            Self::Records(records) => {
                Box::new(numbers.map(move |number| Ok(records.batch(number, count))))
            }
            Self::Pairs(pairs) => {
                Box::new(numbers.map(move |number| Ok(pairs.batch(number, count))))
            }
            // The driver samples them from the current weights.
            Self::Prompts(_) => Box::new(std::iter::empty()),
        }
    }

    /// The prompt of the first record, of at most `most` tokens, if the data consists of prompts and answers.
    pub(crate) fn prompt(&self, most: usize) -> Result<Option<SamplePrompt>, DataError> {
        match self {
            Self::Windows { .. } => match self.splits().next() {
                Some(split) => SamplePrompt::of_split(split, most),
                None => Ok(None),
            },
            Self::Pairs(pairs) => Ok(pairs.prompt(most)),
            Self::Records(_) | Self::Prompts(_) => Ok(None),
        }
    }

    /// The splits of the datasets of tokens.
    pub(crate) fn splits(&self) -> impl Iterator<Item = &TokenSplit> {
        let batches = match self {
            Self::Windows { batches, .. } => Some(batches),
            Self::Records(_) | Self::Pairs(_) | Self::Prompts(_) => None,
        };
        batches.into_iter().flat_map(TrainBatches::splits)
    }

    /// The positions of the inputs, without padding, of the first `sequences` sequences of the run, each window with
    /// `seq_len` of them. 0 for sequences that are sampled during the run.
    pub(crate) fn positions(&self, sequences: u64, seq_len: usize) -> u64 {
        match self {
            Self::Windows { .. } => sequences.saturating_mul(seq_len as u64),
            Self::Records(records) => records.tokens_before(sequences),
            Self::Pairs(pairs) => pairs.tokens_before(sequences),
            Self::Prompts(_) => 0,
        }
    }
}
