//! A step's loss and gradients, of all its micro-batches together.

use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::Tensor;
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::TrainingPass;

use crate::clip::{clip_factor, global_norm};
use crate::config::TrainConfig;
use crate::read::host_read;
use crate::trainee::{TokenBatch, Trainee};

/// What a step has computed, on the device.
pub(crate) struct Computed<B: Backend> {
    /// The mean loss over the step's targets, `[1]`.
    pub(crate) loss: Tensor<B, 1>,
    /// The norm of all gradients together before clipping and without the loss's scale, `[1]`; 0 where there are none.
    pub(crate) norm: Tensor<B, 1>,
    /// What the update multiplies every gradient by, for clipping and against the loss's scale, `[1]`; none for 1.
    pub(crate) factor: Option<Tensor<B, 1>>,
    /// The gradients, of the scaled loss.
    pub(crate) grads: GradientsParams,
}

/// The loss summed over all of a step's micro-batches and divided by `learnt`, and its gradients: the mean over the
/// step's targets, however they are spread over its micro-batches. The gradients are those of the loss times `scale`; norm
/// and factor are those without it.
pub(crate) fn compute<B: TrainingBackend>(
    model: &Trainee<B>,
    micro_batches: &[TokenBatch<B>],
    learnt: usize,
    config: &TrainConfig,
    step: usize,
    scale: Option<f64>,
) -> Computed<B::InnerBackend> {
    // Dropout is a function of the seed, the step and the micro-batch, so that nothing of it has to be carried.
    let passes = TrainingPass::of_step(config.seed, step as u64, config.recompute);
    let objective = config.objective();
    let mut accumulator = GradientsAccumulator::new();
    let mut loss: Option<Tensor<B::InnerBackend, 1>> = None;
    for (batch, pass) in micro_batches.iter().zip(passes) {
        let (part, grads) = model.loss_and_gradients(batch.clone(), learnt, objective, pass, scale);
        accumulator.accumulate(model, grads);
        loss = Some(match loss {
            Some(sum) => sum + part,
            None => part,
        });
    }
    let zeros = || Tensor::zeros([1], &model.decoder.device());
    let grads = accumulator.grads();
    let norm = global_norm::<B, _>(model, &grads);
    let inverse = scale.map(f64::recip);
    let norm = match inverse {
        Some(inverse) => norm.map(|norm| norm * inverse),
        None => norm,
    };
    let factor = norm
        .clone()
        .and_then(|norm| clip_factor(norm, config.clip_norm));
    // Without a pass of its own over the gradients.
    let factor = match (factor, inverse) {
        (Some(factor), Some(inverse)) => Some(factor * inverse),
        (None, Some(inverse)) => Some(zeros() + inverse),
        (factor, None) => factor,
    };
    Computed {
        loss: loss.unwrap_or_else(zeros),
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
