//! The limits of an evaluation.

use std::ops::ControlFlow;

use crate::objective::HostBatch;
use crate::stop::StopSignal;

/// The limits of an evaluation.
#[derive(Clone, Copy)]
pub(crate) struct Limits<'a> {
    /// Sequences per batch.
    pub(crate) batch: usize,
    /// Input tokens of each dataset; `None` for all.
    pub(crate) max_tokens: Option<u64>,
    pub(crate) stop: &'a StopSignal,
}

impl Limits<'_> {
    /// Breaks if a stop was requested.
    pub(crate) fn check(&self) -> ControlFlow<()> {
        match self.stop.is_requested() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// The batches of records up to the limit of input tokens, at least one batch.
    pub(super) fn of_records(
        self,
        batches: impl Iterator<Item = HostBatch>,
    ) -> impl Iterator<Item = HostBatch> {
        let mut left = self.max_tokens.unwrap_or(u64::MAX);
        batches.take_while(move |batch| {
            let before = left;
            let tokens = batch.lengths.iter().flatten().sum::<usize>() as u64;
            left = left.saturating_sub(tokens);
            before > 0
        })
    }
}
