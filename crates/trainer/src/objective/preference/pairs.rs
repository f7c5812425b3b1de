//! Tokenized pairs, kept in memory.
//!
//! The order of an epoch is a permutation by the seed, so that a batch is a function of the number of its first pair. A batch
//! is padded to its longest sequence.

use std::sync::Arc;

use emberlm_data::{ChatTokens, IGNORED, PreferenceForm, Shuffle};

use super::batch::{PreferenceBatch, PreferenceSequence};
use super::loss::PreferenceLoss;
use crate::data::identity::SplitIdentity;
use crate::objective::sample::SamplePrompt;
use crate::objective::{CompletionBatch, HostBatch};

/// The tokenized pairs of a split.
#[derive(Clone)]
pub(crate) struct PairSet {
    pairs: Arc<[Pair]>,
    order: Shuffle,
    /// The id of padding tokens.
    padding: u32,
    loss: PreferenceLoss,
    /// The log-probabilities of the chosen and the rejected completion of each pair under the reference model; empty for
    /// losses without one.
    references: Arc<[[f64; 2]]>,
}

/// The chosen and the rejected sequence; or a labelled sequence, and the same prompt with another completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) sequences: [ChatTokens; 2],
    /// False if the first sequence is labelled as undesirable.
    pub(super) label: bool,
}

impl Pair {
    fn tokens(&self) -> u64 {
        self.sequences
            .iter()
            .map(|tokens| tokens.ids.len() as u64)
            .sum()
    }
}

/// The places of targets in a sequence: position `p` predicts token `p + 1`.
fn targets(tokens: &ChatTokens) -> impl DoubleEndedIterator<Item = usize> + '_ {
    let next = tokens.learnt.iter().skip(1).enumerate();
    next.filter(|(_, learnt)| **learnt)
        .map(|(position, _)| position)
}

/// Returns true if a token of a completion is predicted.
pub(super) fn has_target(tokens: &ChatTokens) -> bool {
    targets(tokens).next().is_some()
}

impl PairSet {
    /// Pairs in the order of `seed`, padded with the id `padding`. Each sequence has a target.
    pub(super) fn new(pairs: Vec<Pair>, loss: PreferenceLoss, seed: u64, padding: u32) -> Self {
        Self {
            order: Shuffle::new(seed, pairs.len() as u64),
            pairs: pairs.into(),
            padding,
            loss,
            references: Arc::default(),
        }
    }

    /// Sets the log-probabilities of the reference model, in the order of the file.
    pub(super) fn set_references(&mut self, references: Vec<[f64; 2]>) {
        self.references = references.into();
    }

    /// The loss.
    pub(crate) fn loss(&self) -> PreferenceLoss {
        self.loss
    }

    /// The number of pairs.
    pub(crate) fn len(&self) -> usize {
        self.pairs.len()
    }

    /// The first prompt of at most `most` tokens.
    pub(crate) fn prompt(&self, most: usize) -> Option<SamplePrompt> {
        let prompt = |pair: &Pair| {
            let [ChatTokens { ids, learnt }, _] = &pair.sequences;
            let prompt = SamplePrompt::of_record(ids, learnt)?;
            // A completion is the end of its sequence.
            Some(prompt.ended_by(ids.last().copied()))
        };
        let mut prompts = self.pairs.iter().filter_map(prompt);
        prompts.find(|prompt| prompt.len() <= most)
    }

    /// The length of the longest sequence in tokens.
    pub(crate) fn longest(&self) -> usize {
        let sequences = self.pairs.iter().flat_map(|pair| &pair.sequences);
        sequences.map(|tokens| tokens.ids.len()).max().unwrap_or(0)
    }

    /// The tokens of all sequences.
    pub(crate) fn tokens(&self) -> u64 {
        self.pairs.iter().map(Pair::tokens).sum()
    }

    /// The tokens of the first `count` pairs of the run, over all epochs.
    pub(crate) fn tokens_before(&self, count: u64) -> u64 {
        let epoch = self.len() as u64;
        let (epochs, rest) = (count / epoch, count % epoch);
        let tokens = |index: u64| self.pairs[self.order.at(index) as usize].tokens();
        epochs * self.tokens() + (count - rest..count).map(tokens).sum::<u64>()
    }

    /// The batch of `count` pairs from number `first` of the run's order, which continues across epochs.
    pub(crate) fn batch(&self, first: u64, count: usize) -> HostBatch {
        let indices = (0..count as u64).map(|offset| first.wrapping_add(offset));
        let places: Vec<usize> = indices.map(|index| self.order.at(index) as usize).collect();
        self.padded(&places)
    }

    /// All pairs in the order of their file, in batches of at most `size`.
    pub(crate) fn batches(&self, size: usize) -> impl Iterator<Item = HostBatch> + '_ {
        let size = size.max(1);
        (0..self.len()).step_by(size).map(move |first| {
            let places: Vec<usize> = (first..self.len().min(first + size)).collect();
            self.padded(&places)
        })
    }

    /// A batch of the pairs at `places`: their chosen sequences, then their rejected ones.
    fn padded(&self, places: &[usize]) -> HostBatch {
        let sides = (0..2).flat_map(|side| places.iter().map(move |&place| (side, place)));
        let rows: Vec<(&ChatTokens, f64)> = sides
            .map(|(side, place)| {
                let reference = self.references.get(place).map_or(0.0, |both| both[side]);
                (&self.pairs[place].sequences[side], reference)
            })
            .collect();
        let lengths: Vec<usize> = rows.iter().map(|(tokens, _)| tokens.ids.len()).collect();
        let seq = lengths.iter().copied().max().unwrap_or(0);
        let mut inputs = Vec::with_capacity(rows.len() * seq);
        let mut next = vec![IGNORED; rows.len() * seq];
        let mut sequences = Vec::with_capacity(rows.len());
        for (row, (tokens, reference)) in rows.into_iter().enumerate() {
            inputs.extend(&tokens.ids);
            inputs.resize((row + 1) * seq, self.padding);
            for position in targets(tokens) {
                next[row * seq + position] = tokens.ids[position + 1];
            }
            let first = targets(tokens).next().unwrap_or(0);
            let last = targets(tokens).next_back().unwrap_or(0);
            sequences.push(PreferenceSequence {
                completion: first..last + 1,
                tokens: targets(tokens).count(),
                length: tokens.ids.len() - 1,
                reference,
            });
        }
        HostBatch {
            inputs,
            documents: None,
            segments: None,
            batch: lengths.len(),
            lengths: Some(lengths),
            targets: next,
            seq,
            target_seq: seq,
            completions: Some(CompletionBatch::Preferences(PreferenceBatch {
                loss: self.loss,
                sequences: sequences.into(),
                labels: match self.loss.form() {
                    PreferenceForm::Pairs => Arc::default(),
                    PreferenceForm::Labelled => places
                        .iter()
                        .map(|&place| self.pairs[place].label)
                        .collect(),
                },
            })),
        }
    }

    /// The identity of the pairs.
    pub(super) fn identity(&self) -> SplitIdentity {
        let mut hasher = blake3::Hasher::new();
        for pair in self.pairs.iter() {
            hasher.update(&[u8::from(pair.label)]);
            for tokens in &pair.sequences {
                hasher.update(&(tokens.ids.len() as u64).to_le_bytes());
                for (id, &learnt) in tokens.ids.iter().zip(&tokens.learnt) {
                    hasher.update(&id.to_le_bytes());
                    hasher.update(&[u8::from(learnt)]);
                }
            }
        }
        SplitIdentity {
            tokens: self.tokens(),
            blake3: hasher.finalize().to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(prompt: &[u32], completion: &[u32]) -> ChatTokens {
        ChatTokens {
            ids: [prompt, completion].concat(),
            learnt: [vec![false; prompt.len()], vec![true; completion.len()]].concat(),
        }
    }

    fn pair(sequences: [ChatTokens; 2]) -> Pair {
        let label = true;
        Pair { sequences, label }
    }

    #[test]
    fn batches_have_chosen_then_rejected_sequences() {
        let pairs = vec![
            pair([tokens(&[1, 2], &[3]), tokens(&[1, 2], &[4, 5])]),
            pair([tokens(&[6], &[7, 8]), tokens(&[6], &[9])]),
        ];
        let loss = PreferenceLoss::Orpo { beta: 0.1 };
        let mut set = PairSet::new(pairs, loss, 1, 0);
        set.set_references(vec![[-1.0, -2.0], [-3.0, -4.0]]);
        let batch = set.batches(2).next().unwrap();
        assert_eq!((batch.batch, batch.seq), (4, 4));
        assert_eq!(
            batch.inputs,
            [1, 2, 3, 0, 6, 7, 8, 0, 1, 2, 4, 5, 6, 9, 0, 0]
        );
        let no = IGNORED;
        assert_eq!(
            batch.targets,
            [no, 3, no, no, 7, 8, no, no, no, 4, 5, no, 9, no, no, no]
        );
        let Some(CompletionBatch::Preferences(pairs)) = batch.completions else {
            panic!("no pairs");
        };
        let references: Vec<f64> = pairs.sequences.iter().map(|of| of.reference).collect();
        assert_eq!(references, [-1.0, -3.0, -2.0, -4.0]);
        assert_eq!(pairs.sequences[2].completion, 1..3);
        assert_eq!(
            (pairs.sequences[1].tokens, pairs.sequences[1].length),
            (2, 2)
        );
        assert_eq!(set.tokens_before(2), set.tokens());
        // An epoch has every pair once.
        let mut lengths = set.batch(2, 2).lengths.unwrap();
        lengths.sort_unstable();
        assert_eq!(lengths, [2, 3, 3, 4]);
    }
}
