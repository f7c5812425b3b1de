//! The prompts of a run, kept in memory. The order of an epoch is a permutation by the seed.

use std::path::Path;
use std::sync::Arc;

use emberlm_data::{PromptEncoder, PromptRecord, Shuffle, read_prompts};

use crate::config::DataConfig;
use crate::data::identity::{DataIdentity, SplitIdentity};
use crate::error::TrainError;
use crate::objective::records::splits::RecordSplits;

/// The prompts of a run that have been read but not tokenized yet.
pub(crate) struct PromptSource(RecordSplits<PromptRecord>);

/// Prompts of both splits.
pub(crate) struct Prompts {
    pub(crate) train: PromptSet,
    pub(crate) validation: PromptSet,
    /// Prompts that were left out, because they leave no room for a completion.
    pub(crate) left_out: usize,
}

/// A tokenized prompt.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Prompt {
    pub(crate) ids: Vec<u32>,
    pub(crate) record: PromptRecord,
}

/// The tokenized prompts of a split.
#[derive(Clone)]
pub(crate) struct PromptSet {
    prompts: Arc<[Prompt]>,
    order: Shuffle,
}

impl PromptSource {
    /// Reads the prompts, whose records have the fields `required`.
    ///
    /// # Errors
    /// A file cannot be read, or a record is broken; there are several datasets, or too few records.
    pub(crate) fn read(data: &DataConfig, required: &[String]) -> Result<Self, TrainError> {
        let read = |path: &std::path::PathBuf| read_prompts(std::slice::from_ref(path), required);
        Ok(Self(RecordSplits::read(data, read)?))
    }

    /// The number of prompts to train on.
    pub(crate) fn train_count(&self) -> usize {
        self.0.train.len()
    }

    /// Returns true if a prompt consists of messages.
    pub(crate) fn has_conversations(&self) -> bool {
        self.0.all().any(PromptRecord::is_conversation)
    }

    /// Tokenizes the prompts, and leaves out those of more than `most_tokens` tokens.
    ///
    /// # Errors
    /// A record cannot be tokenized, or no prompt is left.
    pub(crate) fn tokenized(
        self,
        encoder: &PromptEncoder,
        most_tokens: usize,
        seed: u64,
    ) -> Result<Prompts, TrainError> {
        let mut left_out = 0;
        let splits = self.0.convert(|records: Vec<PromptRecord>, path: &Path| {
            let mut prompts = Vec::with_capacity(records.len());
            for record in records {
                let ids = encoder
                    .encode(&record)
                    .map_err(|error| TrainError::Preference {
                        path: path.to_owned(),
                        line: record.number,
                        reason: error.to_string(),
                    })?;
                match ids.len() <= most_tokens {
                    true => prompts.push(Prompt { ids, record }),
                    false => left_out += 1,
                }
            }
            Ok(prompts)
        })?;
        Ok(Prompts {
            train: PromptSet::new(splits.train, seed),
            validation: PromptSet::new(splits.validation, seed),
            left_out,
        })
    }
}

impl Prompts {
    /// The identity of the prompts, so that a run is not resumed on others.
    pub(crate) fn identity(&self) -> DataIdentity {
        DataIdentity {
            train: self.train.identity(),
            val: self.validation.identity(),
        }
    }
}

impl PromptSet {
    fn new(prompts: Vec<Prompt>, seed: u64) -> Self {
        Self {
            order: Shuffle::new(seed, prompts.len() as u64),
            prompts: prompts.into(),
        }
    }

    /// The prompts in the order of their file.
    pub(crate) fn prompts(&self) -> &[Prompt] {
        &self.prompts
    }

    /// The places of `count` prompts from number `first` of the run's order, which continues across epochs.
    pub(crate) fn places(&self, first: u64, count: usize) -> Vec<usize> {
        let numbers = (0..count as u64).map(|offset| first.wrapping_add(offset));
        numbers
            .map(|number| self.order.at(number) as usize)
            .collect()
    }

    /// The length of the longest prompt in tokens.
    pub(crate) fn longest(&self) -> usize {
        self.prompts
            .iter()
            .map(|prompt| prompt.ids.len())
            .max()
            .unwrap_or(0)
    }

    /// The tokens of all prompts.
    pub(crate) fn tokens(&self) -> u64 {
        self.prompts
            .iter()
            .map(|prompt| prompt.ids.len() as u64)
            .sum()
    }

    fn identity(&self) -> SplitIdentity {
        let mut hasher = blake3::Hasher::new();
        for prompt in self.prompts.iter() {
            let fields = serde_json::to_vec(&prompt.record.fields).unwrap_or_default();
            hasher.update(&(fields.len() as u64).to_le_bytes());
            hasher.update(&fields);
            for id in &prompt.ids {
                hasher.update(&id.to_le_bytes());
            }
        }
        SplitIdentity {
            tokens: self.tokens(),
            blake3: hasher.finalize().to_string(),
        }
    }
}
