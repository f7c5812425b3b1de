//! The batches of a run that trains on its first step's sequences only.

use std::iter;

use super::HostBatches;

/// The first `count` of `batches`, over and over. An error is returned once, in its place.
pub(super) fn repeated(mut batches: HostBatches<'_>, count: usize) -> HostBatches<'_> {
    let mut kept = Vec::new();
    let mut next = 0;
    Box::new(iter::from_fn(move || {
        if kept.len() < count {
            let batch = batches.next()?;
            kept.extend(batch.as_ref().ok().cloned());
            return Some(batch);
        }
        let batch = kept.get(next).cloned();
        next = (next + 1) % count.max(1);
        batch.map(Ok)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objective::HostBatch;

    fn batches() -> HostBatches<'static> {
        let batch = |token: u32| HostBatch {
            inputs: vec![token],
            documents: None,
            segments: None,
            lengths: None,
            targets: vec![token + 1],
            batch: 1,
            seq: 1,
            target_seq: 1,
            completions: None,
        };
        Box::new((0..).map(move |token| Ok(batch(token))))
    }

    #[test]
    fn the_first_batches_are_repeated_in_order() {
        let tokens: Vec<u32> = repeated(batches(), 3)
            .take(8)
            .map(|batch| batch.expect("a batch").inputs[0])
            .collect();
        assert_eq!(tokens, [0, 1, 2, 0, 1, 2, 0, 1]);
    }

    #[test]
    fn nothing_repeats_of_an_empty_source() {
        let empty: HostBatches<'_> = Box::new(iter::empty());
        assert!(repeated(empty, 2).next().is_none());
        assert!(repeated(batches(), 0).next().is_none());
    }
}
