//! Batches for training, in a seeded order, and for evaluation, in the text's order.

use crate::order::check_seq_len;
use crate::{Batch, DataError, TokenSplit, WindowOrder};

/// Training batches: which windows are in a batch depends on its first window's index alone.
#[derive(Clone)]
pub struct TrainBatches {
    split: TokenSplit,
    order: WindowOrder,
}

impl TrainBatches {
    /// Batches of windows of `seq_len` positions over `split`, in the order of `seed`.
    ///
    /// # Errors
    /// [`DataError::TooShort`] where the split has not even one window; [`DataError::Value`] where `seq_len` is 0.
    pub fn new(split: TokenSplit, seed: u64, seq_len: usize) -> Result<Self, DataError> {
        let order = WindowOrder::new(seed, split.len(), seq_len as u64)?;
        Ok(Self { split, order })
    }

    /// The order of the windows.
    pub fn order(&self) -> &WindowOrder {
        &self.order
    }

    /// The `micro_batch` windows from `first_window_index` on, which counts windows since the run's start and may run
    /// into the next epoch.
    ///
    /// # Errors
    /// Where the tokens cannot be read; [`DataError::Value`] where `micro_batch` is 0.
    pub fn batch(&self, first_window_index: u64, micro_batch: usize) -> Result<Batch, DataError> {
        check_batch("micro_batch", micro_batch)?;
        let seq_len = self.order.seq_len();
        let mut batch = Batch::empty(seq_len as usize);
        for i in 0..micro_batch as u64 {
            let start = self.order.start(first_window_index.wrapping_add(i));
            batch.push(&self.split.read(start, seq_len + 1)?);
        }
        Ok(batch)
    }
}

/// Batches that predict every token of a split but the first, each exactly once, in the text's order.
///
/// Full windows come `batch` at a time, the last such batch with what is left; what is shorter than a window comes last,
/// as a batch of one.
pub struct EvalBatches {
    split: TokenSplit,
    seq_len: u64,
    batch: u64,
    /// The next window's first token.
    position: u64,
    /// How many tokens are to be predicted in all.
    targets: u64,
}

/// Evaluation batches of up to `batch` windows of `seq_len` positions over `split`; with `max_tokens`, no more than
/// that many predicted tokens, from the beginning.
///
/// # Errors
/// [`DataError::TooShort`] where there are not even two tokens; [`DataError::Value`] where `seq_len`, `batch` or
/// `max_tokens` is 0.
pub fn eval_batches(
    split: &TokenSplit,
    seq_len: usize,
    batch: usize,
    max_tokens: Option<u64>,
) -> Result<EvalBatches, DataError> {
    check_seq_len(seq_len as u64)?;
    check_batch("batch", batch)?;
    if max_tokens == Some(0) {
        return Err(DataError::Value {
            field: "max_tokens",
            value: "0".to_owned(),
            rule: "it must be at least 1",
        });
    }
    let tokens = split.len();
    if tokens < 2 {
        return Err(DataError::TooShort { tokens, seq_len: 1 });
    }
    Ok(EvalBatches {
        split: split.clone(),
        seq_len: seq_len as u64,
        batch: batch as u64,
        position: 0,
        targets: max_tokens.map_or(tokens - 1, |max| max.min(tokens - 1)),
    })
}

impl EvalBatches {
    /// How many tokens are predicted in all.
    pub fn targets(&self) -> u64 {
        self.targets
    }

    /// The next batch, of `windows` windows of `seq` positions.
    fn take(&mut self, windows: u64, seq: u64) -> Result<Batch, DataError> {
        let mut batch = Batch::empty(seq as usize);
        for _ in 0..windows {
            batch.push(&self.split.read(self.position, seq + 1)?);
            self.position += seq;
        }
        Ok(batch)
    }
}

impl Iterator for EvalBatches {
    type Item = Result<Batch, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        let left = self.targets - self.position;
        let (windows, seq) = match left / self.seq_len {
            0 if left == 0 => return None,
            0 => (1, left),
            full => (full.min(self.batch), self.seq_len),
        };
        let batch = self.take(windows, seq);
        if batch.is_err() {
            // An error is told once; the iterator ends with it.
            self.position = self.targets;
        }
        Some(batch)
    }
}

fn check_batch(field: &'static str, value: usize) -> Result<(), DataError> {
    match value {
        0 => Err(DataError::Value {
            field,
            value: value.to_string(),
            rule: "it must be at least 1",
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dataset::tests::split_of;

    fn counting(tokens: u32) -> TokenSplit {
        let ids: Vec<u32> = (0..tokens).collect();
        let first = ids.len() / 3;
        split_of(&ids, &[first, ids.len() - first], 70_000)
    }

    #[test]
    fn a_training_batch_is_its_windows_side_by_side() {
        let batches = TrainBatches::new(counting(1000), 5, 8).unwrap();
        let batch = batches.batch(40, 3).unwrap();
        assert_eq!((batch.batch, batch.seq), (3, 8));
        for (row, index) in (40..43).enumerate() {
            let start = batches.order().start(index) as u32;
            let inputs: Vec<u32> = (start..start + 8).collect();
            let targets: Vec<u32> = (start + 1..start + 9).collect();
            assert_eq!(batch.inputs[row * 8..][..8], inputs);
            assert_eq!(batch.targets[row * 8..][..8], targets);
        }
    }

    #[test]
    fn micro_batches_are_the_large_batch_in_pieces() {
        let batches = TrainBatches::new(counting(1000), 5, 8).unwrap();
        let whole = batches.batch(6, 6).unwrap();
        let [a, b] = [6, 9].map(|first| batches.batch(first, 3).unwrap());
        assert_eq!([a.inputs, b.inputs].concat(), whole.inputs);
        assert_eq!(batches.batch(6, 6).unwrap(), whole);
    }

    #[test]
    fn values_of_nothing_are_refused_by_name() {
        let split = counting(100);
        let named = |result: Result<(), DataError>| result.unwrap_err().to_string();
        let train = TrainBatches::new(split.clone(), 0, 8).unwrap();
        assert!(named(train.batch(0, 0).map(drop)).contains("`micro_batch` is 0"));
        assert!(named(eval_batches(&split, 0, 1, None).map(drop)).contains("`seq_len` is 0"));
        assert!(named(eval_batches(&split, 1, 0, None).map(drop)).contains("`batch` is 0"));
        assert!(named(eval_batches(&split, 1, 1, Some(0)).map(drop)).contains("`max_tokens` is 0"));
        let one = counting(1);
        assert!(
            named(eval_batches(&one, 8, 1, None).map(drop))
                .contains("needs 2 tokens, but the split has 1")
        );
    }

    #[test]
    fn evaluation_ends_with_a_smaller_batch_and_the_tail() {
        let shapes: Vec<(usize, usize)> = eval_batches(&counting(24), 4, 2, None)
            .unwrap()
            .map(|batch| batch.map(|b| (b.batch, b.seq)).unwrap())
            .collect();
        assert_eq!(shapes, [(2, 4), (2, 4), (1, 4), (1, 3)]);
    }

    #[test]
    fn a_bad_token_ends_an_evaluation_with_one_error() {
        let split = split_of(&[0, 1, 2, 99, 0, 1], &[6], 3);
        let results: Vec<bool> = eval_batches(&split, 2, 1, None)
            .unwrap()
            .map(|b| b.is_ok())
            .collect();
        assert_eq!(results, [true, false]);
    }

    proptest! {
        #[test]
        fn evaluation_predicts_every_token_once(
            tokens in 2u32..200, seq_len in 1usize..40, batch in 1usize..6, max in prop::option::of(1u64..250),
        ) {
            let batches = eval_batches(&counting(tokens), seq_len, batch, max).unwrap();
            let count = batches.targets();
            prop_assert_eq!(count, u64::from(tokens - 1).min(max.unwrap_or(u64::MAX)));
            let mut targets = Vec::new();
            for made in batches {
                let made = made.unwrap();
                prop_assert!(made.batch <= batch && made.seq <= seq_len);
                prop_assert_eq!(made.inputs.len(), made.batch * made.seq);
                prop_assert!(made.inputs.iter().zip(&made.targets).all(|(i, t)| i + 1 == *t));
                targets.extend(made.targets);
            }
            prop_assert_eq!(targets, (1..=count as u32).collect::<Vec<_>>());
        }
    }
}
