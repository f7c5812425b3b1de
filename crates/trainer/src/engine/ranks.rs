//! Decisions between two steps that all ranks share, and the state that rank 0 collects from them.

use emberlm_kernels::TrainingBackend;

use super::StepEngine;
use crate::optimizer::Snapshot;
use crate::peers::{PeersError, sum_count};
use crate::stop::StopSignal;

impl<B: TrainingBackend> StepEngine<B> {
    /// Returns true if a stop was requested on any rank, and then requests it on this one too. All ranks call
    /// this before each step, so they stop at the same one.
    ///
    /// # Errors
    /// A peer cannot be reached.
    pub(crate) fn agree_to_stop(&self, stop: &StopSignal) -> Result<bool, PeersError> {
        let own = stop.is_requested();
        if self.rank().world_size() == 1 {
            return Ok(own);
        }
        let stopped = sum_count(&*self.peers, usize::from(own))? > 0;
        if stopped && !own {
            stop.save();
        }
        Ok(stopped)
    }

    /// Returns true if rank 0 calls this with `wanted`. All ranks call it where a checkpoint may be due, since all
    /// send their part of the optimizer's state.
    ///
    /// # Errors
    /// A peer cannot be reached.
    pub(crate) fn agree_to_save(&self, wanted: bool) -> Result<bool, PeersError> {
        if self.rank().world_size() == 1 {
            return Ok(wanted);
        }
        let wanted = wanted && self.rank().is_zero();
        Ok(sum_count(&*self.peers, usize::from(wanted))? > 0)
    }

    /// The optimizer's state of all ranks, on rank 0; `None` on the others. All ranks must call this.
    ///
    /// # Errors
    /// A peer cannot be reached.
    pub(crate) fn gathered_optimizer(
        &self,
    ) -> Result<Option<Snapshot<B::InnerBackend>>, PeersError> {
        self.optimizer.gathered_snapshot(&*self.peers)
    }

    /// The bytes of optimizer state that this rank holds.
    #[cfg(test)]
    pub(crate) fn held_state_bytes(&self) -> usize {
        let tensors = self.optimizer.snapshot().tensors().into_iter();
        tensors
            .map(|(_, tensor)| 4 * tensor.on_host().values.len())
            .sum()
    }
}
