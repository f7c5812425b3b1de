//! Evaluation batches: every token of a split once, in order.

use crate::{Batch, DataError, Windows};

/// Batches that predict every token of a split except the first exactly once, in order. Tokens excluded by a mask are
/// not targets.
///
/// Full windows are returned in batches of `batch`; the last of these batches may be smaller. Remaining tokens that
/// do not fill a window follow as a batch of one shorter window. Rows of documents are padded.
pub struct EvalBatches {
    windows: Windows,
    batch: u64,
    /// The first token of the next window, or the index of the next row.
    next: u64,
    /// The number of tokens to predict, or the number of rows.
    end: u64,
    /// The number of tokens to read from the split.
    tokens: u64,
}

impl EvalBatches {
    /// Batches of at most `batch` of `windows`. `max_tokens` limits evaluation to the first `max_tokens + 1` tokens.
    ///
    /// # Errors
    /// [`DataError::TooShort`] if there are fewer than two tokens, [`DataError::Value`] if `batch` or `max_tokens` is
    /// 0, or if the rows are not in the order of the split ([`Windows::best_fit`]).
    pub fn new(
        windows: &Windows,
        batch: usize,
        max_tokens: Option<u64>,
    ) -> Result<Self, DataError> {
        for (field, value) in [
            ("batch", batch as u64),
            ("max_tokens", max_tokens.unwrap_or(1)),
        ] {
            if value == 0 {
                return Err(DataError::Value {
                    field,
                    value: value.to_string(),
                    rule: "must be at least 1",
                });
            }
        }
        let tokens = windows.split().len();
        if tokens < 2 {
            return Err(DataError::TooShort { tokens, seq_len: 1 });
        }
        let targets = max_tokens.map_or(tokens - 1, |max| max.min(tokens - 1));
        let end = match windows.rows() {
            // A row that begins at the last token has nothing to predict.
            Some(rows) => rows.rows_before(targets).ok_or_else(|| DataError::Value {
                field: "packing",
                value: rows.packing().to_string(),
                rule: "is for training: evaluate isolated documents in the order of the split",
            })?,
            None => targets,
        };
        Ok(Self {
            windows: windows.clone(),
            batch: batch as u64,
            next: 0,
            end,
            tokens: targets + 1,
        })
    }

    /// The number of positions, including masked targets and padding.
    pub fn positions(&self) -> u64 {
        match self.windows.rows() {
            Some(_) => self.end * self.windows.seq_len() as u64,
            None => self.end,
        }
    }

    /// The number of windows, including the last one, which may be shorter.
    pub fn windows(&self) -> u64 {
        match self.windows.rows() {
            Some(_) => self.end,
            None => self.end.div_ceil(self.windows.seq_len() as u64),
        }
    }

    /// Returns the next batch, with `windows` windows of `seq` positions.
    fn take(&mut self, windows: u64, seq: u64) -> Result<Batch, DataError> {
        let mut batch = self.windows.empty_batch(seq);
        for _ in 0..windows {
            match self.windows.rows() {
                Some(rows) => {
                    self.windows
                        .push_row(rows, self.next, self.tokens, &mut batch)?;
                    self.next += 1;
                }
                None => {
                    self.windows.push_from(self.next, &mut batch)?;
                    self.next += seq;
                }
            }
        }
        Ok(batch)
    }
}

impl Iterator for EvalBatches {
    type Item = Result<Batch, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (left, seq_len) = (self.end - self.next, self.windows.seq_len() as u64);
        let full = match self.windows.rows() {
            Some(_) => left,
            None => left / seq_len,
        };
        let (windows, seq) = match full {
            0 if left == 0 => return None,
            0 => (1, left),
            full => (full.min(self.batch), seq_len),
        };
        let batch = self.take(windows, seq);
        if batch.is_err() {
            // The iterator ends after its first error.
            self.next = self.end;
        }
        Some(batch)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dataset::tests::{masked_split, split_of};
    use crate::{IGNORED, TokenSplit};

    pub(crate) fn counting(tokens: u32) -> TokenSplit {
        let ids: Vec<u32> = (0..tokens).collect();
        let first = ids.len() / 3;
        split_of(&ids, &[first, ids.len() - first], 70_000)
    }

    fn stream(split: &TokenSplit, seq_len: usize) -> Windows {
        Windows::stream(split.clone(), seq_len).unwrap()
    }

    #[test]
    fn bad_values_are_rejected() {
        let windows = stream(&counting(100), 8);
        let error_message = |batch, max_tokens, windows: &Windows| {
            let result = EvalBatches::new(windows, batch, max_tokens);
            result.err().unwrap().to_string()
        };
        assert!(error_message(0, None, &windows).contains("`batch` is 0"));
        assert!(error_message(1, Some(0), &windows).contains("`max_tokens` is 0"));
        let one = stream(&counting(1), 8);
        assert!(error_message(1, None, &one).contains("needs 2 tokens, but the split has 1"));
        let best_fit = Windows::best_fit(split_of(&[0, 1, 0, 2], &[4], 3), 3, 0).unwrap();
        let message = error_message(1, None, &best_fit);
        assert!(
            message.contains("`packing` is best_fit: is for training"),
            "{message}"
        );
    }

    #[test]
    fn evaluation_ends_with_a_smaller_batch_and_a_short_window() {
        let shapes: Vec<(usize, usize)> = EvalBatches::new(&stream(&counting(24), 4), 2, None)
            .unwrap()
            .map(|batch| batch.map(|b| (b.batch, b.seq)).unwrap())
            .collect();
        assert_eq!(shapes, [(2, 4), (2, 4), (1, 4), (1, 3)]);
    }

    #[test]
    fn evaluation_ends_after_the_first_invalid_token() {
        let split = split_of(&[0, 1, 2, 99, 0, 1], &[6], 3);
        let results: Vec<bool> = EvalBatches::new(&stream(&split, 2), 1, None)
            .unwrap()
            .map(|b| b.is_ok())
            .collect();
        assert_eq!(results, [true, false]);
    }

    #[test]
    fn masked_tokens_are_inputs_but_not_targets() {
        let ids: Vec<u32> = (0..10).collect();
        let learnt = [0, 1, 1, 0, 0, 1, 0, 1, 0, 1].map(|l| l == 1);
        let split = masked_split(&ids, &learnt, 2);
        let mut inputs = Vec::new();
        let mut targets = Vec::new();
        for batch in EvalBatches::new(&stream(&split, 4), 1, None).unwrap() {
            let batch = batch.unwrap();
            inputs.extend(batch.inputs);
            targets.extend(batch.targets.into_iter().filter(|&id| id != IGNORED));
        }
        assert_eq!(inputs, (0..9).collect::<Vec<_>>());
        // The first shard has no mask, so its tokens are targets.
        assert_eq!(targets, [1, 2, 5, 7, 9]);
    }

    #[test]
    fn isolated_documents_are_evaluated_in_order() {
        let ids = [0, 1, 2, 0, 3, 4, 5, 6, 0, 7];
        let split = split_of(&ids, &[10], 10);
        let windows = Windows::isolated(split, 3, 0).unwrap();
        let targets = |max_tokens| {
            let batches = EvalBatches::new(&windows, 2, max_tokens).unwrap();
            let positions = batches.positions();
            let made: Vec<Batch> = batches.map(Result::unwrap).collect();
            let count: usize = made.iter().map(|batch| batch.inputs.len()).sum();
            assert_eq!(count as u64, positions);
            let targets = made.into_iter().flat_map(|batch| batch.targets);
            targets.filter(|&id| id != IGNORED).collect::<Vec<_>>()
        };
        assert_eq!(targets(None), ids[1..]);
        assert_eq!(targets(Some(5)), [1, 2, 0, 3, 4]);
        assert_eq!(targets(Some(3)), [1, 2, 0]);
    }

    proptest! {
        #[test]
        fn isolated_documents_predict_every_token_once(
            ids in prop::collection::vec(0u32..6, 2..200), seq_len in 1usize..40, batch in 1usize..6,
            max in prop::option::of(1u64..250),
        ) {
            let first = ids.len() / 3;
            let split = split_of(&ids, &[first, ids.len() - first], 6);
            let windows = Windows::isolated(split, seq_len, 0).unwrap();
            let batches = EvalBatches::new(&windows, batch, max).unwrap();
            let positions = batches.positions();
            let (mut predicted, mut count) = (Vec::new(), 0);
            for made in batches {
                let made = made.unwrap();
                prop_assert!(made.batch <= batch && made.seq == seq_len);
                count += made.inputs.len() as u64;
                for (at, &target) in made.targets.iter().enumerate().filter(|(_, t)| **t != IGNORED) {
                    // Documents begin at the last end-of-text token before the position, if it is in the same row.
                    let row = &made.inputs[at - at % seq_len..=at];
                    let begin = row.iter().rposition(|&id| id == 0).unwrap_or(0);
                    prop_assert_eq!(made.documents.as_ref().unwrap()[at], begin as u32);
                    predicted.push(target);
                }
            }
            prop_assert_eq!(count, positions);
            let targets = ids.len().min(max.map_or(usize::MAX, |max| max as usize + 1));
            prop_assert_eq!(&predicted, &ids[1..targets]);
        }

        #[test]
        fn evaluation_predicts_every_token_once(
            tokens in 2u32..200, seq_len in 1usize..40, batch in 1usize..6, max in prop::option::of(1u64..250),
        ) {
            let batches = EvalBatches::new(&stream(&counting(tokens), seq_len), batch, max).unwrap();
            let count = batches.positions();
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
