//! A step's loss and gradients, of all its micro-batches together.
//!
//! ```text
//! of_micro_batches   the micro-batches of this rank   loss and gradients, each divided by all ranks' targets
//! all_reduce         over all ranks                   (`peers`)
//! finish             one norm over all gradients      the factor that clips them and takes the loss's scale out
//! ```

use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::Tensor;
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::{ExpertLoad, TrainingPass};

use crate::clip::{clip_factor, global_norm};
use crate::config::TrainConfig;
use crate::peers::Rank;
use crate::read::host_read;
use crate::stop::StopSignal;
use crate::training_model::{TokenBatch, TrainingModel};

/// A step's loss and gradients, on the device and before the update.
pub(crate) struct StepGradients<B: Backend> {
    /// The mean loss over the step's targets, `[1]`.
    pub(crate) loss: Tensor<B, 1>,
    /// The norm of all gradients together before clipping and without the loss's scale, `[1]`; 0 where there are none.
    pub(crate) norm: Tensor<B, 1>,
    /// The factor on every gradient, for clipping and against the loss's scale, `[1]`; none for 1.
    pub(crate) factor: Option<Tensor<B, 1>>,
    /// The gradients of the scaled loss.
    pub(crate) grads: GradientsParams,
}

/// The sums over one rank's micro-batches.
pub(crate) struct MicroBatchGradients<B: TrainingBackend> {
    pub(crate) loss: Tensor<B::InnerBackend, 1>,
    pub(crate) grads: GradientsParams,
    /// The tokens of each expert.
    pub(crate) expert_load: ExpertLoad,
}

/// A step that is to be computed.
#[derive(Clone, Copy)]
pub(crate) struct StepNumbers {
    /// Steps before it.
    pub(crate) step: usize,
    /// The targets of all ranks, which the loss is divided by.
    pub(crate) targets: usize,
    /// The factor on the loss of the gradients.
    pub(crate) scale: Option<f64>,
    /// The rank that computes it.
    pub(crate) rank: Rank,
}

/// The loss summed over one rank's micro-batches and divided by the step's targets, and its gradients: over all ranks, the
/// mean over the step's targets, however they are spread over micro-batches and ranks. The gradients are those of the
/// loss times `scale`. None if `stop` asks for the end before all micro-batches are computed.
pub(crate) fn of_micro_batches<B: TrainingBackend>(
    model: &TrainingModel<B>,
    micro_batches: &[TokenBatch<B>],
    numbers: StepNumbers,
    config: &TrainConfig,
    stop: Option<&StopSignal>,
) -> Option<MicroBatchGradients<B>> {
    let model_config = model.decoder.config();
    let draws = model_config.dropout() > 0.0 && !model_config.dropout_sites().is_empty();
    let _turn = draws.then(random_state);
    B::run(|| accumulate(model, micro_batches, numbers, config, stop))
}

/// The turn of a model to seed the backend's random state and to draw dropout masks from it. The state belongs to the process:
/// without turns, models that are trained on two threads would draw each other's numbers.
fn random_state() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// [`of_micro_batches`] on a thread of the backend.
fn accumulate<B: TrainingBackend>(
    model: &TrainingModel<B>,
    micro_batches: &[TokenBatch<B>],
    numbers: StepNumbers,
    config: &TrainConfig,
    stop: Option<&StopSignal>,
) -> Option<MicroBatchGradients<B>> {
    let StepNumbers {
        step,
        targets,
        scale,
        rank,
    } = numbers;
    let objective = config.objective();
    let mut accumulator = GradientsAccumulator::new();
    let mut loss: Option<Tensor<B::InnerBackend, 1>> = None;
    let mut expert_load = ExpertLoad::default();
    for (number, batch) in (0..).zip(micro_batches) {
        if stop.is_some_and(StopSignal::is_requested) {
            return None;
        }
        // Dropout is a function of the seed, the step and the micro-batch, so that nothing of it has to be carried.
        let pass = TrainingPass {
            recompute: config.recompute,
            dropout_seed: TrainingPass::dropout_seed(
                config.seed,
                step as u64,
                rank.micro_batch(number),
            ),
        };
        let (part, grads, load) =
            model.loss_and_gradients(batch.clone(), targets, objective, pass, scale);
        accumulator.accumulate(model, grads);
        expert_load.add(&load);
        loss = Some(match loss {
            Some(sum) => sum + part,
            None => part,
        });
    }
    let loss = loss.unwrap_or_else(|| Tensor::zeros([1], &model.decoder.device()));
    Some(MicroBatchGradients {
        loss,
        grads: accumulator.grads(),
        expert_load,
    })
}

/// The norm and the factor of complete gradients; both are without the loss's `scale`.
pub(crate) fn finish<B: TrainingBackend>(
    model: &TrainingModel<B>,
    (loss, grads): (Tensor<B::InnerBackend, 1>, GradientsParams),
    config: &TrainConfig,
    scale: Option<f64>,
) -> StepGradients<B::InnerBackend> {
    let zeros = || Tensor::zeros([1], &model.decoder.device());
    let norm = global_norm::<B, _>(model, &grads);
    let inverse = scale.map(f64::recip);
    let norm = match inverse {
        Some(inverse) => norm.map(|norm| norm * inverse),
        None => norm,
    };
    let factor = norm
        .clone()
        .and_then(|norm| clip_factor(norm, config.clip_norm));
    // Without a separate pass over the gradients.
    let factor = match (factor, inverse) {
        (Some(factor), Some(inverse)) => Some(factor * inverse),
        (None, Some(inverse)) => Some(zeros() + inverse),
        (factor, None) => factor,
    };
    StepGradients {
        loss,
        norm: norm.unwrap_or_else(zeros),
        factor,
        grads,
    }
}

/// Losses and norms on the host, in one transfer.
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
