//! Reads the pairs of a run, and tokenizes them.

use std::path::Path;

use emberlm_data::{
    ChatTokens, PreferenceEncoder, PreferenceForm, PreferenceRecord, read_preferences,
};

use super::loss::PreferenceLoss;
use super::pairs::{Pair, PairSet, has_target};
use crate::config::DataConfig;
use crate::data::identity::DataIdentity;
use crate::error::TrainError;
use crate::objective::records::encode::encode_records;
use crate::objective::records::splits::RecordSplits;

/// The pairs of a run that have been read but not tokenized yet.
pub(crate) struct PairSource(RecordSplits<PreferenceRecord>);

/// Pairs of both splits.
pub(crate) struct Pairs {
    pub(crate) train: PairSet,
    pub(crate) validation: PairSet,
    /// Pairs with a truncated sequence.
    pub(crate) truncated: usize,
    /// Pairs that were left out, because truncation removed a whole completion.
    pub(crate) left_out: usize,
}

impl PairSource {
    /// Reads the pairs.
    ///
    /// # Errors
    /// A file cannot be read, or a record is broken; there are several datasets, or too few records.
    pub(crate) fn read(data: &DataConfig, form: PreferenceForm) -> Result<Self, TrainError> {
        let read = |path: &std::path::PathBuf| read_preferences(std::slice::from_ref(path), form);
        Ok(Self(RecordSplits::read(data, read)?))
    }

    /// The number of pairs to train on.
    pub(crate) fn train_count(&self) -> usize {
        self.0.train.len()
    }

    /// Returns true if a record consists of messages.
    pub(crate) fn has_conversations(&self) -> bool {
        self.0.all().any(|record| record.is_conversation)
    }

    /// Tokenizes the pairs. The end of a sequence with more than `max_tokens` tokens is cut off.
    ///
    /// # Errors
    /// A record cannot be tokenized or has no target, or no pair is left.
    pub(crate) fn tokenized(
        self,
        encoder: &PreferenceEncoder,
        loss: PreferenceLoss,
        max_tokens: usize,
        seed: u64,
        padding: u32,
    ) -> Result<Pairs, TrainError> {
        let mut cut = Cut {
            max_tokens,
            truncated: 0,
            left_out: 0,
        };
        let splits = self
            .0
            .convert(|records, path| cut.pairs(&records, encoder, path))?;
        let set = |pairs| PairSet::new(pairs, loss, seed, padding);
        Ok(Pairs {
            train: set(splits.train),
            validation: set(splits.validation),
            truncated: cut.truncated,
            left_out: cut.left_out,
        })
    }
}

/// Truncates and counts.
struct Cut {
    max_tokens: usize,
    truncated: usize,
    left_out: usize,
}

impl Cut {
    fn pairs(
        &mut self,
        records: &[PreferenceRecord],
        encoder: &PreferenceEncoder,
        path: &Path,
    ) -> Result<Vec<Pair>, TrainError> {
        let mut kept = Vec::with_capacity(records.len());
        encode_records(records, encoder, path, |record, mut sequences| {
            if !sequences.iter().all(has_target) {
                return Err("a completion has no token that is predicted from another");
            }
            let is_cut = sequences.iter_mut().map(|tokens| self.cut(tokens));
            self.truncated += usize::from(is_cut.fold(false, |any, is_cut| any | is_cut));
            match sequences.iter().all(has_target) {
                true => kept.push((sequences, record.label)),
                false => self.left_out += 1,
            }
            Ok(())
        })?;
        // Of labelled records, the completion of the record before; of the first, that of the last.
        let mut before = kept.last().and_then(|(last, _)| last.first().cloned());
        let pairs = kept.into_iter().filter_map(|(sequences, label)| {
            let mut sequences = sequences.into_iter();
            let first = sequences.next()?;
            let second = match sequences.next() {
                Some(rejected) => rejected,
                None => {
                    let other = before.replace(first.clone())?;
                    let mut mismatched = with_completion(&first, &other);
                    self.cut(&mut mismatched);
                    mismatched
                }
            };
            Some(Pair {
                sequences: [first, second],
                label,
            })
        });
        Ok(pairs.collect())
    }

    /// Truncates a sequence. Returns true if it was too long.
    fn cut(&self, tokens: &mut ChatTokens) -> bool {
        let is_long = tokens.ids.len() > self.max_tokens;
        tokens.ids.truncate(self.max_tokens);
        tokens.learnt.truncate(self.max_tokens);
        is_long
    }
}

/// The prompt of `tokens`, with the completion of `other`.
fn with_completion(tokens: &ChatTokens, other: &ChatTokens) -> ChatTokens {
    let start = |tokens: &ChatTokens| {
        let first = tokens.learnt.iter().position(|learnt| *learnt);
        first.unwrap_or(tokens.ids.len())
    };
    let (prompt, completion) = (start(tokens), start(other));
    ChatTokens {
        ids: [&tokens.ids[..prompt], &other.ids[completion..]].concat(),
        learnt: [&tokens.learnt[..prompt], &other.learnt[completion..]].concat(),
    }
}

impl Pairs {
    /// The identity of the pairs, so that a run is not resumed on others.
    pub(crate) fn identity(&self) -> DataIdentity {
        DataIdentity {
            train: self.train.identity(),
            val: self.validation.identity(),
        }
    }
}
