//! The memory of one of several ranks: a shard of the optimizer's state, and the exchanges of a step.
//!
//! ```text
//! shard      P / N        the longest shard; with Muon, tables of tokens have 2 moments and matrices 1
//! exchange   P + P/N      at most all gradients and the sums for the shard, and buckets
//! update     2·P/N        the shard's gradients and updated parameters
//! gather     P/N          the updated parameters of the rank, while those of all replace the previous ones, and buckets
//! ```

use emberlm_model::{ParameterRole, TransformerConfig};

use super::shape::{largest, matrices, other_state};
use super::{Phase, PhaseMemory, trained, update};
use crate::config::TrainConfig;
use crate::optimizer::UpdateMemory;
use crate::peers::BUCKET;

/// Elements of the optimizer's state of a rank, of the `state` elements of all ranks.
pub(super) fn state(
    model: &TransformerConfig,
    train: &TrainConfig,
    ranks: usize,
    state: f64,
) -> f64 {
    let memory = |role| UpdateMemory::of(train, &role);
    let of_matrices = memory(ParameterRole::Matrix);
    if of_matrices.is_elementwise || ranks == 1 || train.adapter.is_some() {
        return state / ranks as f64;
    }
    // Matrices are not divided, so a shard can have all other parameters, which have more moments.
    let shard = trained(model, train) / ranks as f64;
    let others = (trained(model, train) - matrices(model)).min(shard);
    of_matrices.moments() * (shard - others)
        + memory(ParameterRole::Vector).moments() * others
        + other_state(model, of_matrices) / ranks as f64
}

/// Elements that the allocator retains because another thread exchanges gradients during the backward pass: copies of the
/// largest parameter, if it is also accumulated over micro-batches. Fitted to measured peaks.
pub(super) fn retained(
    model: &TransformerConfig,
    train: &TrainConfig,
    ranks: usize,
    micro_batches: usize,
) -> f64 {
    match ranks > 1 && micro_batches > 1 {
        true => 2.0 * largest(model).min(trained(model, train)),
        false => 0.0,
    }
}

/// The phases after the backward pass: the update of a rank's shard and the exchanges around it.
pub(super) fn phases(
    model: &TransformerConfig,
    train: &TrainConfig,
    ranks: usize,
) -> [PhaseMemory; 3] {
    let all = trained(model, train);
    let shard = all / ranks as f64;
    let largest = largest(model).min(all);
    let bucket = (BUCKET as f64).min(all);
    // Slices that are sent and received: of gradients for each rank, of parameters the same for all.
    let others = (ranks - 1) as f64;
    let buckets = bucket * (3.0 * others + 1.0) / ranks as f64;
    let phase = |phase, gradients, temporaries| PhaseMemory {
        phase,
        gradients,
        activations: 0.0,
        temporaries,
    };
    let update = update(model, train, largest.min(shard));
    [
        phase(Phase::Exchange, all, shard + buckets),
        phase(Phase::Update, shard, shard + update),
        phase(Phase::Exchange, 0.0, shard + buckets),
    ]
}
