//! Labelled texts, pairs of texts and conversations, tokenized and kept in memory.
//!
//! The order of an epoch is a permutation by the seed, so that a batch is a function of the number of its first record. A
//! batch is padded to its longest text.

use std::sync::Arc;

use emberlm_data::{EncodedSequence, IGNORED, Shuffle};

use super::HostBatch;
use crate::data::identity::SplitIdentity;

pub(super) mod conversations;
pub(super) mod encode;
pub(super) mod source;
pub(super) mod splits;

/// The tokenized records of a split.
#[derive(Clone)]
pub(crate) struct RecordSet {
    records: Arc<[Record]>,
    order: Shuffle,
    /// The id of padding tokens.
    padding: u32,
    /// True if inputs have segments.
    segmented: bool,
}

/// A tokenized record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::objective) struct Record {
    inputs: Vec<u32>,
    /// Empty if the segment of all inputs is 0.
    segments: Vec<u32>,
    /// The label, the tokens of the target text, or of a conversation the token after each input.
    targets: Vec<u32>,
}

impl Record {
    /// Returns true if there is nothing to read or to predict.
    pub(in crate::objective) fn is_empty(&self) -> bool {
        self.inputs.is_empty() || self.targets.is_empty()
    }

    /// A sequence whose tokens are predicted from those before them where they are `learnt`. `None` if none is.
    pub(in crate::objective) fn of_next_tokens(mut ids: Vec<u32>, learnt: &[bool]) -> Option<Self> {
        let next = ids.iter().zip(learnt).skip(1);
        let targets = next.map(|(&id, &learnt)| if learnt { id } else { IGNORED });
        let targets: Vec<u32> = targets.collect();
        ids.pop();
        let has_target = targets.iter().any(|id| *id != IGNORED);
        has_target.then(|| Self {
            inputs: ids,
            segments: Vec::new(),
            targets,
        })
    }

    pub(in crate::objective) fn new(sequence: EncodedSequence, targets: Vec<u32>) -> Self {
        let segmented = sequence.segments.iter().any(|&segment| segment != 0);
        Self {
            inputs: sequence.ids,
            segments: if segmented {
                sequence.segments
            } else {
                Vec::new()
            },
            targets,
        }
    }
}

impl RecordSet {
    /// Records in the order of `seed`, padded with the id `padding`.
    pub(in crate::objective) fn new(records: Vec<Record>, seed: u64, padding: u32) -> Self {
        Self {
            order: Shuffle::new(seed, records.len() as u64),
            segmented: records.iter().any(|record| !record.segments.is_empty()),
            records: records.into(),
            padding,
        }
    }

    /// The number of records.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// The lengths of the longest input and the longest target, in tokens.
    pub(crate) fn longest(&self) -> (usize, usize) {
        let lengths = |length: fn(&Record) -> usize| {
            let lengths = self.records.iter().map(length);
            lengths.max().unwrap_or(0)
        };
        (
            lengths(|record| record.inputs.len()),
            lengths(|record| record.targets.len()),
        )
    }

    /// The input tokens of all records.
    pub(crate) fn tokens(&self) -> u64 {
        self.records
            .iter()
            .map(|record| record.inputs.len() as u64)
            .sum()
    }

    /// The input tokens of the first `count` records of the run, over all epochs.
    pub(crate) fn tokens_before(&self, count: u64) -> u64 {
        let epoch = self.len() as u64;
        let (epochs, rest) = (count / epoch, count % epoch);
        let tokens = |index: u64| self.at(index).inputs.len() as u64;
        epochs * self.tokens() + (count - rest..count).map(tokens).sum::<u64>()
    }

    /// The record at `index` of the run's order.
    fn at(&self, index: u64) -> &Record {
        // The order has as many items as there are records.
        &self.records[self.order.at(index) as usize]
    }

    /// The batch of `count` records from number `first` of the run's order, which continues across epochs.
    pub(crate) fn batch(&self, first: u64, count: usize) -> HostBatch {
        let indices = (0..count as u64).map(|offset| first.wrapping_add(offset));
        self.padded(indices.map(|index| self.at(index)).collect())
    }

    /// All records in the order of their files, in batches of at most `size`.
    pub(crate) fn batches(&self, size: usize) -> impl Iterator<Item = HostBatch> + '_ {
        let chunks = self.records.chunks(size.max(1));
        chunks.map(|chunk| self.padded(chunk.iter().collect()))
    }

    fn padded(&self, records: Vec<&Record>) -> HostBatch {
        let longest = |length: fn(&Record) -> usize| {
            let lengths = records.iter().map(|record| length(record));
            lengths.max().unwrap_or(0)
        };
        let (seq, target_seq) = (
            longest(|record| record.inputs.len()),
            longest(|record| record.targets.len()),
        );
        let mut batch = HostBatch {
            inputs: Vec::with_capacity(records.len() * seq),
            documents: None,
            segments: self.segmented.then(Vec::new),
            lengths: Some(records.iter().map(|record| record.inputs.len()).collect()),
            targets: Vec::with_capacity(records.len() * target_seq),
            batch: records.len(),
            seq,
            target_seq,
            completions: None,
        };
        for (row, record) in (1..).zip(&records) {
            batch.inputs.extend(&record.inputs);
            batch.inputs.resize(row * seq, self.padding);
            batch.targets.extend(&record.targets);
            batch.targets.resize(row * target_seq, IGNORED);
            if let Some(segments) = &mut batch.segments {
                segments.extend(&record.segments);
                segments.resize(row * seq, 0);
            }
        }
        batch
    }

    pub(in crate::objective) fn identity(&self) -> SplitIdentity {
        let mut hasher = blake3::Hasher::new();
        let mut add = |ids: &[u32]| {
            hasher.update(&(ids.len() as u64).to_le_bytes());
            ids.iter().for_each(|id| {
                hasher.update(&id.to_le_bytes());
            });
        };
        for record in self.records.iter() {
            add(&record.inputs);
            add(&record.segments);
            add(&record.targets);
        }
        SplitIdentity {
            tokens: self.tokens(),
            blake3: hasher.finalize().to_string(),
        }
    }
}
