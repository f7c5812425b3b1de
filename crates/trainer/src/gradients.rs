//! A step's loss and gradients, of all its micro-batches together.

use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::Tensor;
use emberlm_kernels::{Backend, HeadLossOptions, TrainingBackend};
use emberlm_model::TrainingPass;

use crate::trainee::{TokenBatch, Trainee};

/// The loss summed over all of a step's micro-batches and divided by `learnt`, `[1]`, and its gradients: the mean over
/// the step's targets, however they are spread over its micro-batches.
pub(crate) fn accumulate<B: TrainingBackend>(
    model: &Trainee<B>,
    micro_batches: Vec<TokenBatch<B>>,
    learnt: usize,
    objective: HeadLossOptions,
    passes: impl Iterator<Item = TrainingPass>,
) -> (Tensor<B::InnerBackend, 1>, GradientsParams) {
    let mut accumulator = GradientsAccumulator::new();
    let mut loss: Option<Tensor<B::InnerBackend, 1>> = None;
    for (batch, pass) in micro_batches.into_iter().zip(passes) {
        let (part, grads) = model.loss_and_gradients(batch, learnt, objective, pass);
        accumulator.accumulate(model, grads);
        loss = Some(match loss {
            Some(sum) => sum + part,
            None => part,
        });
    }
    let loss = loss.unwrap_or_else(|| Tensor::zeros([1], &model.decoder.device()));
    (loss, accumulator.grads())
}

/// Loss and norm on the host, in one transfer.
pub(crate) fn read<B: Backend>(loss: Tensor<B, 1>, norm: Option<Tensor<B, 1>>) -> (f64, f64) {
    let norm = norm.unwrap_or_else(|| Tensor::zeros([1], &loss.device()));
    let both: Vec<f64> = Tensor::cat(vec![loss, norm], 0)
        .into_data()
        .iter()
        .collect();
    (both[0], both[1])
}
