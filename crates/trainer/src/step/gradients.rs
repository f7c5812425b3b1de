//! The loss and the gradients of one step, over all its micro-batches.
//!
//! ```text
//! of_micro_batches   the micro-batches of this rank   loss and gradients, each divided by all ranks' targets
//! reduce_scatter     over all ranks, if several       (`peers/exchange.rs`)
//! clipping           one norm over all gradients      the factor that clips them and takes the loss's scale out
//! ```

use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::{ExpertLoad, GradientSink, TrainingPass};

use crate::config::TrainConfig;
use crate::objective::CompletionScores;
use crate::objective::model::gradient_sums::GradientSums;
use crate::objective::model::{TokenBatch, TrainingModel};
use crate::peers::Rank;
use crate::peers::exchange::ShardGradients;
use crate::read::host_read;
use crate::step::clip::clip_factor;
use crate::stop::StopSignal;

/// A step's loss and gradients on the device, before the update.
pub(crate) struct StepGradients<B: Backend> {
    /// The mean loss over the step's targets, `[1]`.
    pub(crate) loss: Tensor<B, 1>,
    /// The global gradient norm before clipping and without the loss scale, `[1]`; 0 without gradients.
    pub(crate) norm: Tensor<B, 1>,
    /// The loss and the norm on the host, if they are sums over several ranks.
    pub(crate) summed: Option<(f64, f64)>,
    /// The factor that applies clipping and removes the loss scale from every gradient, `[1]`. `None` for 1.
    pub(crate) factor: Option<Tensor<B, 1>>,
    /// The gradients of the scaled loss.
    pub(crate) grads: CompleteGradients<B>,
}

/// The gradients that this process updates parameters with.
pub(crate) enum CompleteGradients<B: Backend> {
    /// Those of a single process.
    All(GradientsParams),
    /// Those of this rank's shard, summed over all ranks.
    Shard {
        /// The gradients.
        gradients: ShardGradients<B>,
        /// The sum of squares of each present parameter's gradient, of all shards.
        squares: Vec<f32>,
    },
}

/// Sums over one rank's micro-batches.
pub(crate) struct MicroBatchGradients<B: TrainingBackend> {
    pub(crate) loss: Tensor<B::InnerBackend, 1>,
    /// The gradients that were not streamed.
    pub(crate) grads: GradientsParams,
    /// Tokens of each expert.
    pub(crate) expert_load: ExpertLoad,
    /// The scores of the preferences or sampled completions of each micro-batch.
    pub(crate) completions: Vec<CompletionScores>,
}

/// The parameters of a step's computation.
#[derive(Clone, Copy)]
pub(crate) struct StepNumbers {
    /// The number of earlier steps.
    pub(crate) step: usize,
    /// Targets of all ranks, by which the loss is divided.
    pub(crate) targets: usize,
    /// The loss scale.
    pub(crate) scale: Option<f64>,
    /// The rank of this process.
    pub(crate) rank: Rank,
}

/// One rank's loss and gradients, summed over its micro-batches and divided by the step's targets. Their sum
/// over all ranks is the mean over the step's targets, regardless of how micro-batches and ranks divide them.
/// The gradients are those of the loss times `scale`. During the last micro-batch, `sink` takes the gradients that are
/// complete; without it, they are returned. Returns `None` if `stop` is requested before all micro-batches are computed.
pub(crate) fn of_micro_batches<B: TrainingBackend>(
    model: &TrainingModel<B>,
    micro_batches: &[TokenBatch<B>],
    numbers: StepNumbers,
    config: &TrainConfig,
    stop: Option<&StopSignal>,
    sink: Option<&GradientSink<B>>,
) -> Option<MicroBatchGradients<B>> {
    let _lock = lock_backend();
    B::run(|| sum_micro_batches(model, micro_batches, numbers, config, stop, sink))
}

/// Locks the parts of a backend that are global to the process: its random state, which dropout seeds, and Burn's
/// autodiff graphs. Models that are trained on two threads would draw each other's random numbers.
fn lock_backend() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Implements [`of_micro_batches`] on a thread of the backend.
fn sum_micro_batches<B: TrainingBackend>(
    model: &TrainingModel<B>,
    micro_batches: &[TokenBatch<B>],
    numbers: StepNumbers,
    config: &TrainConfig,
    stop: Option<&StopSignal>,
    sink: Option<&GradientSink<B>>,
) -> Option<MicroBatchGradients<B>> {
    let StepNumbers {
        step,
        targets,
        scale,
        rank,
    } = numbers;
    let options = config.loss_options();
    let sums = GradientSums::default();
    let mut loss: Option<Tensor<B::InnerBackend, 1>> = None;
    let mut expert_load = ExpertLoad::default();
    let mut completions = Vec::new();
    for (number, batch) in (0..).zip(micro_batches) {
        if stop.is_some_and(StopSignal::is_requested) {
            return None;
        }
        // Dropout depends only on the seed, the step and the micro-batch, so checkpoints need no random
        // state.
        let pass = TrainingPass {
            recompute: config.recompute,
            embedding_noise: config.embedding_noise,
            dropout_seed: TrainingPass::dropout_seed(
                config.seed,
                step as u64,
                rank.micro_batch(number),
            ),
        };
        let is_last = number + 1 == micro_batches.len() as u64;
        let add = match sink {
            Some(sink) if is_last => sums.added_to(sink),
            _ => sums.sink(),
        };
        let batch = batch.clone();
        let made = model.streamed_gradients(batch, targets, options, pass, scale, &add);
        let part = made.loss;
        expert_load.add(&made.expert_load);
        completions.push(made.completions);
        loss = Some(match loss {
            Some(sum) => sum + part,
            None => part,
        });
    }
    let loss = loss.unwrap_or_else(|| Tensor::zeros([1], &model.device()));
    Some(MicroBatchGradients {
        loss,
        grads: sums.into_gradients(),
        expert_load,
        completions,
    })
}

/// The norm of complete gradients and the factor that clips them, from the norm of the scaled gradients; `None` without
/// gradients. Both exclude the loss's `scale`.
pub(crate) fn clipping<B: Backend>(
    norm: Option<Tensor<B, 1>>,
    clip_norm: f64,
    scale: Option<f64>,
    device: &Device<B>,
) -> (Tensor<B, 1>, Option<Tensor<B, 1>>) {
    let zeros = || Tensor::zeros([1], device);
    let inverse = scale.map(f64::recip);
    let norm = match inverse {
        Some(inverse) => norm.map(|norm| norm * inverse),
        None => norm,
    };
    let factor = norm.clone().and_then(|norm| clip_factor(norm, clip_norm));
    // One combined factor saves a separate pass over the gradients.
    let factor = match (factor, inverse) {
        (Some(factor), Some(inverse)) => Some(factor * inverse),
        (None, Some(inverse)) => Some(zeros() + inverse),
        (factor, None) => factor,
    };
    (norm.unwrap_or_else(zeros), factor)
}

/// The loss and the norm of [`clipping`] on the host, from sums over all ranks: the bits that [`read`] returns on the CPU.
pub(crate) fn judged(loss: f32, norm: Option<f32>, scale: Option<f64>) -> (f64, f64) {
    let inverse = scale.map_or(1.0, f64::recip) as f32;
    (loss.into(), (norm.unwrap_or(0.0) * inverse).into())
}

/// Reads losses and norms from the device in one transfer.
pub(crate) fn read<B: Backend>(
    figures: impl IntoIterator<Item = (Tensor<B, 1>, Tensor<B, 1>)>,
) -> Vec<(f64, f64)> {
    let tensors: Vec<_> = figures
        .into_iter()
        .flat_map(|(loss, norm)| [loss, norm])
        .collect();
    if tensors.is_empty() {
        return Vec::new();
    }
    let numbers: Vec<f64> = host_read(Tensor::cat(tensors, 0)).iter().collect();
    numbers.chunks(2).map(|pair| (pair[0], pair[1])).collect()
}
