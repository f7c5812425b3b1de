//! The decoder in the form that Burn's learner expects.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Int, Tensor};
use burn::train::{InferenceStep, TrainOutput, TrainStep};

use emberlm_kernels::{Backend, HeadLossOptions, TrainingBackend};
use emberlm_model::{Decoder, ExpertLoad, Tokens, TrainingPass};

use crate::metrics::Figures;
use crate::read::host_number;

/// Input tokens and their targets.
#[derive(Clone, Debug)]
pub struct TokenBatch<B: BurnBackend> {
    /// The input tokens, `[batch, seq]`, with document boundaries if documents are isolated.
    pub tokens: Tokens<B>,
    /// The next tokens, `[batch, seq]`; [`emberlm_model::IGNORED`] at positions without a loss.
    pub targets: Tensor<B, 2, Int>,
    /// The number of targets with a loss.
    pub learnt: usize,
}

impl<B: BurnBackend> TokenBatch<B> {
    /// The number of positions, `batch * seq`.
    pub fn count(&self) -> usize {
        self.tokens.dims().iter().product()
    }
}

/// A decoder in training.
#[derive(Module, Debug)]
pub struct TrainingModel<B: BurnBackend> {
    /// The model.
    pub decoder: Decoder<B>,
}

impl<B: TrainingBackend> TrainingModel<B> {
    /// The summed loss divided by `divisor`, on the device and detached from the graph, with its gradients and the
    /// tokens of each expert. Loss and gradients include the terms that `objective` adds to the cross-entropy, and the
    /// losses of routers, weighted by the batch's share of `divisor`. `scale` multiplies only the gradients.
    pub fn loss_and_gradients(
        &self,
        batch: TokenBatch<B>,
        divisor: usize,
        objective: HeadLossOptions,
        pass: TrainingPass,
        scale: Option<f64>,
    ) -> (Tensor<B::InnerBackend, 1>, GradientsParams, ExpertLoad) {
        let TokenBatch {
            tokens,
            targets,
            learnt,
        } = batch;
        let factor = scale.unwrap_or(1.0);
        let share = learnt as f64 / divisor as f64;
        let routers = self.decoder.config().router_coefficients();
        let mut unscaled = None;
        let loss = |hidden| {
            let sum = self
                .decoder
                .training_loss_sum_of(hidden, targets, objective);
            let mean = sum / divisor as f64;
            match scale {
                Some(scale) => {
                    unscaled = Some(mean.clone().inner());
                    mean * scale
                }
                None => mean,
            }
        };
        let routers = routers.times(share * factor);
        let made = self
            .decoder
            .gradients_with_routers(tokens, pass, routers, loss);
        let grads = GradientsParams::from_grads(made.gradients, self);
        let mut value = unscaled.unwrap_or(made.loss);
        if let Some(router_loss) = made.router_loss {
            value = value + router_loss / factor;
        }
        (value, grads, made.expert_load)
    }
}

/// A step for Burn's own strategies, with the cross-entropy as the loss. This crate's strategy uses
/// [`TrainingModel::loss_and_gradients`] instead, which accumulates and leaves the loss on the device.
impl<B: TrainingBackend> TrainStep for TrainingModel<B> {
    type Input = TokenBatch<B>;
    type Output = Figures;

    fn step(&self, batch: TokenBatch<B>) -> TrainOutput<Figures> {
        let count = batch.learnt.max(1);
        let (objective, pass) = (HeadLossOptions::default(), TrainingPass::default());
        let (loss, grads, _) = self.loss_and_gradients(batch, count, objective, pass, None);
        let item = Figures::of_loss(host_number(loss));
        TrainOutput { grads, item }
    }
}

impl<B: Backend> InferenceStep for TrainingModel<B> {
    type Input = TokenBatch<B>;
    type Output = Figures;

    fn step(&self, batch: TokenBatch<B>) -> Figures {
        let count = batch.learnt.max(1);
        let sum = self.decoder.loss_sum(batch.tokens, batch.targets);
        Figures::of_loss(host_number(sum) / count as f64)
    }
}
