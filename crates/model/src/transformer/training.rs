//! Training pass: computes the loss and the gradients of every parameter, either with one autodiff graph of the whole
//! model or, with activation recomputation, with the graph of one block at a time.
//!
//! ```text
//! whole        tokens ─► embedding ─► block 1 ─► … ─► block n ─► norm, loss        one graph, one backward pass
//!
//! recomputing  tokens ─► embedding ─► x₁ ─► … ─► xₙ ─► xₙ₊₁ ─► norm, loss          no graph of the blocks
//!                                     keep every xᵢ
//!              for i = n … 1: run block i again on xᵢ; backward pass from the gradient of xᵢ₊₁ to that of xᵢ
//! ```
//!
//! Recomputation (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost") keeps only the inputs of the
//! blocks, `n_layers · [batch, seq, d_model]`, and the activations of one block. It costs an additional forward pass
//! of every block, about a third more time. Results are bit-identical: a block repeats the same operations on the
//! same values, and its backward pass starts from `Σ xᵢ₊₁ · g`, whose gradient with respect to xᵢ₊₁ is exactly `g`. Those of
//! an encoder–decoder are equal except for rounding: its stacks share a token table and the encoder's states, whose
//! gradients are then summed in another order.
//!
//! The gradients of a block's parameters are complete when the backward pass reaches the block's input, long before those of
//! the first block. [`Transformer::streamed_gradients`] hands them over then, so that several processes can exchange them while
//! the pass continues. In one graph, a hook on each block's input takes them.
//!
//! The backward passes of recomputed blocks run one after another instead of as nested operations of one graph, because
//! nesting deadlocks: Burn 0.21 locks a graph during its backward pass and visits all graphs at the end of every
//! backward pass.

mod gradients;
mod model_pass;
mod stack_pass;

use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Device, Distribution, Tensor};

use emberlm_kernels::{AttentionMask, TrainingBackend};
use emberlm_system::random::split_mix;

use crate::config::DropoutSite;
use crate::nn::low_rank::Adapter;
use crate::nn::router_loss::{ExpertLoad, RouterCoefficients};
use crate::transformer::input::ModelInput;
use crate::transformer::model::Transformer;

use model_pass::ModelPass;
use stack_pass::StackPass;

pub use gradients::{CompleteGradient, GradientSink};

/// Options of a training pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrainingPass {
    /// True to keep only the blocks' inputs and recompute their activations for the backward pass.
    pub recompute: bool,
    /// Scale α of the noise that is added to a decoder's embeddings: uniform within `±α / √(seq · d_model)` (Jain et al.
    /// 2023, "NEFTune: Noisy Embeddings Improve Instruction Finetuning"). 0 for none.
    pub embedding_noise: f64,
    /// Seed of the dropout masks and the noise; see [`TrainingPass::dropout_seed`].
    pub dropout_seed: u64,
}

impl TrainingPass {
    /// Returns an endless iterator over the passes of a step's micro-batches.
    pub fn of_step(seed: u64, step: u64, recompute: bool) -> impl Iterator<Item = Self> {
        (0..).map(move |micro_batch| Self {
            recompute,
            dropout_seed: Self::dropout_seed(seed, step, micro_batch),
            ..Self::default()
        })
    }

    /// The dropout seed of a micro-batch. The embedding and each block derive their seeds from it, so that a recomputed
    /// block has the same masks, and so that a resumed run continues with the same masks.
    pub fn dropout_seed(seed: u64, step: u64, micro_batch: u64) -> u64 {
        split_mix(split_mix(split_mix(seed) ^ step) ^ micro_batch)
    }
}

type Inner<B> = <B as AutodiffBackend>::InnerBackend;

/// The results of a training pass.
pub struct PassGradients<B: TrainingBackend> {
    /// The value of the loss, without the routers'.
    pub loss: Tensor<Inner<B>, 1>,
    /// The losses of the routers times their coefficients, `[1]`; `None` if there are none.
    pub router_loss: Option<Tensor<Inner<B>, 1>>,
    /// The gradients of the sum of both, without those that were handed over during the pass.
    pub gradients: B::Gradients,
    /// The tokens of each expert.
    pub expert_load: ExpertLoad,
}

impl<B: TrainingBackend> Transformer<B> {
    /// Computes `loss` and its gradients with respect to all parameters. `loss` maps the hidden states before the head,
    /// `[batch, seq, d_model]`, to `[1]`; of an encoder–decoder, those of its decoder.
    ///
    /// If the model has dropout, the backend's random state is reseeded.
    pub fn gradients(
        &self,
        input: impl Into<ModelInput<B>>,
        pass: TrainingPass,
        loss: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 1>,
    ) -> (Tensor<Inner<B>, 1>, B::Gradients) {
        let none = RouterCoefficients::default();
        let pass = self.gradients_with_routers(input, pass, none, loss);
        (pass.loss, pass.gradients)
    }

    /// [`Transformer::gradients`] of the sum of `loss` and the losses of the routers.
    pub fn gradients_with_routers(
        &self,
        input: impl Into<ModelInput<B>>,
        pass: TrainingPass,
        coefficients: RouterCoefficients,
        loss: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 1>,
    ) -> PassGradients<B> {
        self.pass(input.into(), pass, coefficients)
            .gradients(loss, None)
    }

    /// [`Transformer::gradients_with_routers`] that hands the gradient of every parameter to `sink` when the backward pass
    /// has passed its block.
    pub fn streamed_gradients(
        &self,
        input: impl Into<ModelInput<B>>,
        pass: TrainingPass,
        coefficients: RouterCoefficients,
        loss: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 1>,
        sink: &GradientSink<B>,
    ) -> PassGradients<B> {
        self.pass(input.into(), pass, coefficients)
            .gradients(loss, Some(sink))
    }

    fn pass(
        &self,
        input: ModelInput<B>,
        pass: TrainingPass,
        coefficients: RouterCoefficients,
    ) -> ModelPass<'_, B, Self> {
        let ModelInput {
            tokens,
            segments,
            padding,
            target,
        } = input;
        let pair = self.encoder.as_ref().zip(target);
        let draws = self.uses_dropout() || pass.embedding_noise > 0.0;
        let seeds = DropoutSeeds {
            // An encoder–decoder without recomputation draws from one stream per stack, as in earlier versions.
            by_part: pass.recompute || pair.is_none(),
            ..DropoutSeeds::new(draws, pass, self.device())
        };
        let mask = AttentionMask {
            padding,
            ..AttentionMask::of_documents(tokens.documents.clone())
        };
        let (offset, noise) = (self.config().first_position(), pass.embedding_noise);
        let ids = tokens.ids.clone();
        let embed = move || {
            let embeddings = &self.embeddings;
            noisy(
                embeddings.forward_with_segments(&tokens, segments.clone(), offset),
                noise,
            )
        };
        let first = |stack| StackPass {
            stack,
            embed: Box::new(embed),
            ids: Some(ids),
            mask,
            component: 0,
            seeds: seeds.clone(),
        };
        let (encoder, last) = match pair {
            None => (None, first(&self.stack)),
            Some((encoder, target)) => {
                let parts = match seeds.by_part {
                    true => encoder.blocks.len() + 2,
                    false => 1,
                };
                let target = target.into();
                let last = StackPass {
                    stack: &self.stack,
                    embed: Box::new(move || self.embeddings.forward(&target, 0)),
                    ids: None,
                    mask: AttentionMask::default(),
                    component: parts,
                    seeds: seeds.clone(),
                };
                (Some(first(encoder)), last)
            }
        };
        ModelPass {
            module: self,
            embeddings: &self.embeddings,
            encoder,
            last,
            coefficients,
            recompute: pass.recompute,
        }
    }

    /// True if training draws dropout masks.
    pub fn uses_dropout(&self) -> bool {
        let config = self.config();
        let adapters = || {
            self.linears()
                .filter_map(|(_, linear)| linear.adapter.as_ref())
        };
        config.dropout() > 0.0 && !config.dropout_sites().is_empty()
            || config.dropout_at(DropoutSite::Attention) > 0.0
            || adapters().any(Adapter::uses_dropout)
    }
}

/// Adds noise of scale α to embeddings `[batch, seq, d_model]`.
fn noisy<B: TrainingBackend>(embedded: Tensor<B, 3>, alpha: f64) -> Tensor<B, 3> {
    if alpha == 0.0 {
        return embedded;
    }
    let [_, seq, width] = embedded.dims();
    let bound = alpha / ((seq * width) as f64).sqrt();
    // A uniform distribution needs a range in f32 that is neither empty nor infinite.
    if !((f64::from(f32::MIN_POSITIVE))..f64::from(f32::MAX) / 2.0).contains(&bound) {
        return embedded;
    }
    let noise = embedded.random_like(Distribution::Uniform(-bound, bound));
    embedded + noise.detach()
}

/// The seeds of the dropout masks of one micro-batch.
#[derive(Clone)]
struct DropoutSeeds<B: TrainingBackend> {
    /// `None` without dropout.
    seed: Option<u64>,
    /// True if each block and the end of a stack have a seed; otherwise only the embeddings have.
    by_part: bool,
    device: Device<B>,
}

impl<B: TrainingBackend> DropoutSeeds<B> {
    fn new(uses_dropout: bool, pass: TrainingPass, device: Device<B>) -> Self {
        Self {
            seed: uses_dropout.then_some(pass.dropout_seed),
            by_part: true,
            device,
        }
    }

    /// Seeds the backend's random state for a block or the end of a stack, if these have seeds.
    fn seed_part(&self, component: usize) {
        if self.by_part {
            self.seed(component);
        }
    }

    /// Seeds the backend's random state for one component. The first stack's embedding is 0, its block `i` is `i + 1`.
    fn seed(&self, component: usize) {
        if let Some(seed) = self.seed {
            B::seed(&self.device, split_mix(seed ^ component as u64));
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::backend::Autodiff;
    use burn_flex::Flex;

    use super::*;

    #[test]
    fn noise_is_uniform_within_the_bound_of_neftune() {
        let zeros = Tensor::<Autodiff<Flex>, 3>::zeros([2, 50, 40], &Default::default());
        assert_eq!(noisy(zeros.clone(), 0.0).abs().sum().into_scalar(), 0.0);
        let noise = noisy(zeros, 5.0);
        let bound = 5.0 / (50.0_f32 * 40.0).sqrt();
        assert!(noise.clone().abs().max().into_scalar() <= bound);
        // The variance of a uniform distribution is a third of its squared bound.
        let variance = noise.square().mean().into_scalar();
        assert!(
            (variance / (bound * bound / 3.0) - 1.0).abs() < 0.05,
            "{variance}"
        );
    }
}
