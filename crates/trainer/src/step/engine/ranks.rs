//! Decisions between two steps that all ranks share, sums over their micro-batches, and the optimizer's state of all.

use burn::tensor::backend::AutodiffBackend;
use emberlm_checkpoint::CheckpointError;
use emberlm_kernels::TrainingBackend;

use super::{StepBatches, StepEngine};
use crate::checkpoint::OptimizerState;
use crate::checkpoint::shards::ShardWriter;
use crate::error::TrainError;
use crate::objective::CompletionScores;
use crate::objective::model::TrainingModel;
use crate::peers::{Peers, PeersError, Rank, sum_count};
use crate::stop::StopSignal;

/// The optimizer's state of a checkpoint, or the error of its file.
pub(crate) type StateOrError<B> =
    Result<OptimizerState<<B as AutodiffBackend>::InnerBackend>, CheckpointError>;

impl<B: TrainingBackend> StepEngine<B> {
    /// The rank of this process.
    pub(crate) fn rank(&self) -> Rank {
        self.peers.rank()
    }

    /// The exchanges with the other processes.
    pub(crate) fn peers(&self) -> &dyn Peers<B::InnerBackend> {
        &*self.peers
    }

    /// Sets the writer of the optimizer's state, which several ranks need to save a checkpoint.
    pub(crate) fn with_shard_writer(mut self, writer: Option<ShardWriter>) -> Self {
        self.shard_writer = writer;
        self
    }

    /// The targets and the positions of a step on all ranks.
    ///
    /// # Errors
    /// A peer cannot be reached.
    pub(super) fn sum_step_counts(
        &self,
        batches: &StepBatches<B>,
    ) -> Result<[usize; 2], PeersError> {
        let own = [batches.targets, batches.positions].map(|count| count as u64);
        let sums = self.peers.sum_counts(&own)?;
        Ok([0, 1].map(|at| sums.get(at).map_or(0, |&sum| sum as usize)))
    }

    /// The scores of the completions in the micro-batches of all ranks, from those in each of this rank's micro-batches.
    /// They are added in the order of the micro-batches, as in one process.
    ///
    /// # Errors
    /// A peer cannot be reached.
    pub(super) fn sum_completions(
        &self,
        own: &[CompletionScores],
    ) -> Result<CompletionScores, PeersError> {
        let mut sum = CompletionScores::default();
        if self.rank().world_size() == 1 || !self.config.objective.is_of_completions() {
            own.iter().for_each(|scores| sum.add(scores));
            return Ok(sum);
        }
        let numbers: Vec<f64> = own.iter().flat_map(|scores| scores.to_numbers()).collect();
        let length = numbers.len() / own.len().max(1);
        let all = self.peers.gather_numbers(&numbers)?;
        for number in 0..own.len() {
            let scores = all
                .iter()
                .filter_map(|of_rank| of_rank.get(number * length..(number + 1) * length));
            scores.for_each(|numbers| sum.add(&CompletionScores::of_numbers(numbers)));
        }
        Ok(sum)
    }

    /// Waits until the parameters of the last update, which are those of `model`, are complete on all ranks, and updates the
    /// average. Parameters may be used before, and wait then.
    ///
    /// # Errors
    /// A peer cannot be reached, and the parameters are not complete.
    pub(crate) fn finish_gather(&mut self, model: &TrainingModel<B>) -> Result<(), PeersError> {
        let Some((gather, guard)) = self.gather.take() else {
            return Ok(());
        };
        gather.finish()?;
        self.update_average(model, guard.as_ref());
        Ok(())
    }

    /// Adds the tokens of each expert in the micro-batches of the other ranks.
    ///
    /// # Errors
    /// A peer cannot be reached.
    pub(super) fn sum_expert_load(&mut self) -> Result<(), PeersError> {
        let tokens = self.expert_load.layers.iter().flatten();
        let own: Vec<u64> = tokens.map(|&tokens| tokens as u64).collect();
        if own.is_empty() {
            return Ok(());
        }
        let sums = self.peers.sum_counts(&own)?;
        let tokens = self.expert_load.layers.iter_mut().flatten();
        for (tokens, sum) in tokens.zip(sums) {
            *tokens = sum as usize;
        }
        Ok(())
    }

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

    /// Returns true if rank 0 calls this with `wanted`. All ranks call it where a checkpoint may be due, until it returns
    /// false, since all write their part of the optimizer's state.
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

    /// The optimizer's state for the next checkpoint, on rank 0, where the inner error is that of its file. Returns `None` on
    /// the others. All ranks must call this.
    ///
    /// # Errors
    /// A peer cannot be reached, or a rank other than 0 cannot write its part.
    pub(crate) fn optimizer_state(&self) -> Result<Option<StateOrError<B>>, TrainError> {
        let snapshot = self.optimizer.snapshot_among(&*self.peers)?;
        let Some(writer) = &self.shard_writer else {
            return Ok(Some(Ok(OptimizerState::Held(snapshot))));
        };
        let written = writer.write(self.position.step, &snapshot, &*self.peers)?;
        Ok(written.map(|partial| partial.map(OptimizerState::Written)))
    }

    /// The bytes of optimizer state that this rank holds.
    #[cfg(test)]
    pub(crate) fn held_state_bytes(&self) -> usize {
        let snapshot = self.optimizer.snapshot_among(&*self.peers);
        snapshot.expect("peers").held_bytes()
    }
}
