//! The decoder as Burn's learner takes it.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Int, Tensor};
use burn::train::{InferenceStep, TrainOutput, TrainStep};

use emberlm_kernels::{Backend, HeadLossOptions, TrainingBackend};
use emberlm_model::{Decoder, ExpertLoad, Tokens, TrainingPass};

use crate::metrics::Figures;
use crate::read::host_number;

/// Tokens and the tokens that follow them, `[batch, seq]` each.
#[derive(Clone, Debug)]
pub struct TokenBatch<B: BurnBackend> {
    /// `[batch, seq]`, with the documents that they are of where those are isolated.
    pub tokens: Tokens<B>,
    /// `[batch, seq]`, [`emberlm_model::IGNORED`] where there is nothing to learn.
    pub targets: Tensor<B, 2, Int>,
    /// The number of targets with a loss.
    pub learnt: usize,
}

impl<B: BurnBackend> TokenBatch<B> {
    /// The number of positions that are computed.
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
    /// The summed loss over `divisor`, on the device and out of the graph, with its gradients and the tokens of each expert.
    /// What `objective` adds to the cross-entropy is in both, and so are the losses of routers, weighted by the batch's
    /// share of `divisor`; `scale` is a factor on only the gradients.
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

/// A step of Burn's own strategies; this crate's strategy accumulates by [`TrainingModel::loss_and_gradients`] and leaves
/// the loss on the device. Burn's know nothing of an objective but the cross-entropy.
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
