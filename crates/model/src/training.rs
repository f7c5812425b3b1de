//! Training pass: computes the loss and the gradients of every parameter, either with one autodiff graph of the whole
//! model or, with activation recomputation, with the graph of one block at a time. Encoder–decoders have only the former.
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
//! same values, and its backward pass starts from `Σ xᵢ₊₁ · g`, whose gradient with respect to xᵢ₊₁ is exactly `g`.
//!
//! The backward passes of the blocks run one after another instead of as nested operations of one graph, because
//! nesting deadlocks: Burn 0.21 locks a graph during its backward pass and visits all graphs at the end of every
//! backward pass.

use burn::module::{Module, ParamId};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Bool, Device, Distribution, Int, Tensor};

use emberlm_kernels::{AttentionMask, TrainingBackend};
use emberlm_system::random::split_mix;

use crate::context::StackContext;
use crate::decoder::Decoder;
use crate::encoder::{Encoder, EncoderInput};
use crate::encoder_decoder::EncoderDecoder;
use crate::low_rank::Adapter;
use crate::router_loss::{ExpertLoad, RouterCoefficients, RouterLoss};
use crate::stack::Stack;
use crate::tokens::Tokens;
use crate::weights::{ParamVisitor, visit_params};

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
    /// The gradients of the sum of both.
    pub gradients: B::Gradients,
    /// The tokens of each expert.
    pub expert_load: ExpertLoad,
}

impl<B: TrainingBackend> Decoder<B> {
    /// Computes `loss` and its gradients with respect to all parameters. `loss` maps the hidden states before the head,
    /// `[batch, seq, d_model]`, to `[1]`. `tokens` is `[batch, seq]`.
    ///
    /// If the model has dropout, the backend's random state is reseeded.
    pub fn gradients(
        &self,
        tokens: impl Into<Tokens<B>>,
        pass: TrainingPass,
        loss: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 1>,
    ) -> (Tensor<Inner<B>, 1>, B::Gradients) {
        let none = RouterCoefficients::default();
        let pass = self.gradients_with_routers(tokens, pass, none, loss);
        (pass.loss, pass.gradients)
    }

    /// [`Decoder::gradients`] of the sum of `loss` and the losses of the routers.
    pub fn gradients_with_routers(
        &self,
        tokens: impl Into<Tokens<B>>,
        pass: TrainingPass,
        coefficients: RouterCoefficients,
        loss: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 1>,
    ) -> PassGradients<B> {
        let draws = self.uses_dropout() || pass.embedding_noise > 0.0;
        let seeds = DropoutSeeds::<B>::new(draws, pass, self.device());
        seeds.seed(0);
        let tokens = tokens.into();
        let embedded = noisy(self.embeddings.forward(&tokens, 0), pass.embedding_noise);
        let stack = StackPass {
            stack: &self.stack,
            context: AttentionMask::of_documents(tokens.documents).into(),
            coefficients,
            seeds,
        };
        match pass.recompute {
            true => stack.recomputed(self, embedded, loss),
            false => stack.whole(embedded, loss),
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
    let noise = embedded.random_like(Distribution::Uniform(-bound, bound));
    embedded + noise.detach()
}

impl<B: TrainingBackend> Encoder<B> {
    /// Computes `loss` and its gradients with respect to all parameters. `loss` maps the final hidden states, `[batch,
    /// seq, d_model]`, to `[1]`.
    ///
    /// If the model has dropout, the backend's random state is reseeded.
    pub fn gradients(
        &self,
        input: impl Into<EncoderInput<B>>,
        pass: TrainingPass,
        loss: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 1>,
    ) -> (Tensor<Inner<B>, 1>, B::Gradients) {
        let seeds = DropoutSeeds::<B>::new(self.uses_dropout(), pass, self.device());
        seeds.seed(0);
        let (embedded, context) = self.embedded_with_context(input);
        let (head, of_head) = (self.stack.blocks.len() + 1, seeds.clone());
        let loss = |states| {
            of_head.seed(head);
            loss(states)
        };
        let stack = StackPass {
            stack: &self.stack,
            context,
            coefficients: RouterCoefficients::default(),
            seeds,
        };
        let made = match pass.recompute {
            true => stack.recomputed(self, embedded, loss),
            false => stack.whole(embedded, loss),
        };
        (made.loss, made.gradients)
    }

    /// True if training draws dropout masks.
    pub fn uses_dropout(&self) -> bool {
        let settings = self.config().settings();
        settings.dropout > 0.0 || settings.attention_dropout > 0.0
    }
}

impl<B: TrainingBackend> EncoderDecoder<B> {
    /// Computes `loss` and its gradients with respect to all parameters. `loss` maps the decoder's hidden states before
    /// the head, `[batch, target, d_model]`, to `[1]`. `source` is `[batch, source]`, with a padding mask that is false
    /// at padding tokens; `target` is the decoder's input, `[batch, target]`. Activations are not recomputed.
    ///
    /// If the model has dropout, the backend's random state is reseeded.
    pub fn gradients(
        &self,
        source: Tensor<B, 2, Int>,
        padding: Option<Tensor<B, 2, Bool>>,
        target: Tensor<B, 2, Int>,
        pass: TrainingPass,
        loss: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 1>,
    ) -> (Tensor<Inner<B>, 1>, B::Gradients) {
        let seeds = DropoutSeeds::<B>::new(self.uses_dropout(), pass, self.device());
        seeds.seed(0);
        let source = self.encode(source, padding);
        seeds.seed(1);
        let loss = loss(self.hidden(target, &source, None));
        (loss.clone().inner(), loss.backward())
    }

    /// True if training draws dropout masks.
    pub fn uses_dropout(&self) -> bool {
        self.config().settings().dropout > 0.0
    }
}

/// The seeds of the dropout masks of one micro-batch.
#[derive(Clone)]
struct DropoutSeeds<B: TrainingBackend> {
    /// `None` without dropout.
    seed: Option<u64>,
    device: Device<B>,
}

impl<B: TrainingBackend> DropoutSeeds<B> {
    fn new(uses_dropout: bool, pass: TrainingPass, device: Device<B>) -> Self {
        Self {
            seed: uses_dropout.then_some(pass.dropout_seed),
            device,
        }
    }

    /// Seeds the backend's random state for one component: 0 is the embedding, `i + 1` is block `i`.
    fn seed(&self, component: usize) {
        if let Some(seed) = self.seed {
            B::seed(&self.device, split_mix(seed ^ component as u64));
        }
    }
}

/// A training pass through the blocks of a stack.
struct StackPass<'a, B: TrainingBackend> {
    stack: &'a Stack<B>,
    context: StackContext<'a, B>,
    coefficients: RouterCoefficients,
    seeds: DropoutSeeds<B>,
}

impl<B: TrainingBackend> StackPass<'_, B> {
    /// Differentiates `loss` of the stack's output in one graph.
    fn whole(
        self,
        embedded: Tensor<B, 3>,
        loss: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 1>,
    ) -> PassGradients<B> {
        let Self {
            stack,
            context,
            coefficients,
            seeds,
        } = self;
        let mut x = embedded;
        let mut routings = Vec::new();
        for (i, block) in stack.blocks.iter().enumerate() {
            seeds.seed(i + 1);
            let mut context = stack.context(i, &context);
            context.routings = Some(&mut routings);
            x = block.run(x, context);
        }
        let loss = loss(stack.finish(x));
        let value = loss.clone().inner();
        let expert_load = ExpertLoad::of(&routings);
        let routers = RouterLoss::of(coefficients, &expert_load, &routings, &seeds.device);
        // From the last layer on, as they are recomputed.
        let parts = routers.map(|routers| {
            let parts = routings.iter().rev().map(|routing| routers.part(routing));
            parts.reduce(|sum, part| sum + part)
        });
        let router_loss = parts.flatten();
        PassGradients {
            loss: value,
            router_loss: router_loss.clone().map(Tensor::inner),
            gradients: match router_loss {
                Some(router_loss) => (loss + router_loss).backward(),
                None => loss.backward(),
            },
            expert_load,
        }
    }

    /// Differentiates `loss` of the stack's output block by block. `module` has the parameters of `embedded`.
    fn recomputed<M: Module<B>>(
        self,
        module: &M,
        embedded: Tensor<B, 3>,
        loss: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 1>,
    ) -> PassGradients<B> {
        let Self {
            stack,
            context,
            coefficients,
            seeds,
        } = self;
        let mut routings = Vec::new();
        let mut inputs = Vec::with_capacity(stack.blocks.len());
        let mut x = embedded.clone().inner();
        for (i, block) in stack.blocks.iter().enumerate() {
            seeds.seed(i + 1);
            // Dropout acts only under autodiff. Without parameters that require gradients, the graph keeps nothing.
            let block = block.clone().no_grad();
            let input = Tensor::from_inner(x.clone());
            let mut context = stack.context(i, &context);
            context.routings = Some(&mut routings);
            let output = block.run(input, context);
            inputs.push(x);
            x = output.inner();
        }

        let last = Tensor::<B, 3>::from_inner(x).require_grad();
        let loss = loss(stack.finish(last.clone()));
        let value = loss.clone().inner();
        let mut all = loss.backward();
        let mut grad = take_gradient(&last, &mut all);
        drop(last);

        let expert_load = ExpertLoad::of(&routings);
        let routers = RouterLoss::of(coefficients, &expert_load, &routings, &seeds.device);
        drop(routings);
        let mut router_loss: Option<Tensor<Inner<B>, 1>> = None;
        for (i, block) in stack.blocks.iter().enumerate().rev() {
            let Some(input) = inputs.pop() else { break };
            let input = Tensor::<B, 3>::from_inner(input).require_grad();
            seeds.seed(i + 1);
            let mut routings = Vec::new();
            let mut context = stack.context(i, &context);
            context.routings = Some(&mut routings);
            let output = block.run(input.clone(), context);
            let part = routers.as_ref().zip(routings.pop());
            let part = part.map(|(routers, routing)| routers.part(&routing));
            if let Some(part) = &part {
                let part = part.clone().inner();
                router_loss = Some(match router_loss {
                    Some(sum) => sum + part,
                    None => part,
                });
            }
            let mut grads = backward(output, grad, part);
            grad = take_gradient(&input, &mut grads);
            move_gradients(block, grads, &mut all);
        }
        move_gradients(module, backward(embedded, grad, None), &mut all);
        PassGradients {
            loss: value,
            router_loss,
            gradients: all,
            expert_load,
        }
    }
}

/// Runs the backward pass of a graph whose output has the gradient `grad`, and of a term of the loss that is computed in
/// it.
fn backward<B: TrainingBackend>(
    output: Tensor<B, 3>,
    grad: Tensor<Inner<B>, 3>,
    term: Option<Tensor<B, 1>>,
) -> B::Gradients {
    let sum = (output * Tensor::from_inner(grad)).sum();
    match term {
        Some(term) => (sum + term).backward(),
        None => sum.backward(),
    }
}

/// Removes and returns the gradient of `x`; zeros if there is none.
fn take_gradient<B: TrainingBackend>(
    x: &Tensor<B, 3>,
    grads: &mut B::Gradients,
) -> Tensor<Inner<B>, 3> {
    x.grad_remove(grads)
        .unwrap_or_else(|| x.clone().inner().zeros_like())
}

/// Moves the gradients of a module's parameters from `from` to `all`, adding to existing ones.
fn move_gradients<B: TrainingBackend, M: Module<B>>(
    module: &M,
    mut from: B::Gradients,
    all: &mut B::Gradients,
) {
    let from = &mut from;
    visit_params(module, &mut GradientMover::<B> { from, all });
}

struct GradientMover<'a, B: TrainingBackend> {
    from: &'a mut B::Gradients,
    all: &'a mut B::Gradients,
}

impl<B: TrainingBackend> ParamVisitor<B> for GradientMover<'_, B> {
    fn visit<const D: usize>(&mut self, _path: &str, _id: ParamId, value: Tensor<B, D>) {
        let Some(grad) = value.grad_remove(self.from) else {
            return;
        };
        // A tied token table has a gradient from the head, too.
        let grad = match value.grad_remove(self.all) {
            Some(before) => grad + before,
            None => grad,
        };
        value.grad_replace(self.all, grad);
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
