//! Training pass: computes the loss and the gradients of every parameter, with an autodiff graph for each block.
//! Encoder–decoders have one graph.
//!
//! ```text
//! forward      tokens ─► embedding ─► x₁ ─► block 1 ─► x₂ ─► … ─► block n ─► xₙ₊₁ ─► norm, loss
//! backward     head;  for i = n … 1: block i, from the gradient of xᵢ₊₁ to that of xᵢ;  embedding
//! ```
//!
//! The gradients of a block's parameters are complete when its backward pass ends, long before those of the first
//! block. [`Decoder::streamed_gradients`] hands them over then, so that several processes can exchange them while the
//! pass continues.
//!
//! With activation recomputation (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"), the forward pass
//! keeps no graphs, and a block's graph is made by running it again on xᵢ just before its backward pass. This keeps only
//! the inputs of the blocks, `n_layers · [batch, seq, d_model]`, and the activations of one block, and costs an additional
//! forward pass of every block, about a third more time. Results are bit-identical: a block repeats the same operations on
//! the same values.
//!
//! The backward pass of a block starts from the gradient of xᵢ₊₁ (`ops::with_gradient`). Blocks below the first trained
//! parameter have no backward pass.
//!
//! The backward passes of the blocks run one after another instead of as nested operations of one graph, because
//! nesting deadlocks: Burn 0.21 locks a graph during its backward pass and visits all graphs at the end of every
//! backward pass.

use std::collections::HashSet;

use burn::module::{Module, ParamId};
use burn::tensor::backend::{AutodiffBackend, Backend as BurnBackend};
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Bool, Device, Distribution, Int, Tensor};

use emberlm_kernels::{AttentionMask, TrainingBackend, ops};
use emberlm_system::random::split_mix;

use crate::context::StackContext;
use crate::decoder::Decoder;
use crate::encoder::{Encoder, EncoderInput};
use crate::encoder_decoder::EncoderDecoder;
use crate::low_rank::Adapter;
use crate::mixture::Routing;
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
    /// The gradients of the sum of both, without those that were handed over during the pass.
    pub gradients: B::Gradients,
    /// The tokens of each expert.
    pub expert_load: ExpertLoad,
}

/// A parameter whose gradient is complete.
pub struct CompleteGradient<B: BurnBackend> {
    /// The parameter.
    pub id: ParamId,
    /// Its gradient; `None` if the loss does not depend on it.
    pub gradient: Option<FloatTensor<B>>,
}

/// Takes the gradients of the head, of each block from the last one on, and of the embeddings.
pub type GradientSink<'a, B> = &'a mut dyn FnMut(Vec<CompleteGradient<Inner<B>>>);

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
        self.pass(tokens.into(), pass, coefficients, loss, None)
    }

    /// [`Decoder::gradients_with_routers`] that hands the gradient of every trained parameter to `sink` as soon as it is
    /// complete.
    pub fn streamed_gradients(
        &self,
        tokens: impl Into<Tokens<B>>,
        pass: TrainingPass,
        coefficients: RouterCoefficients,
        loss: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 1>,
        sink: GradientSink<'_, B>,
    ) -> PassGradients<B> {
        self.pass(tokens.into(), pass, coefficients, loss, Some(sink))
    }

    fn pass(
        &self,
        tokens: Tokens<B>,
        pass: TrainingPass,
        coefficients: RouterCoefficients,
        loss: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 1>,
        sink: Option<GradientSink<'_, B>>,
    ) -> PassGradients<B> {
        let draws = self.uses_dropout() || pass.embedding_noise > 0.0;
        let seeds = DropoutSeeds::<B>::new(draws, pass, self.device());
        seeds.seed(0);
        let embedded = noisy(self.embeddings.forward(&tokens, 0), pass.embedding_noise);
        let stack = StackPass {
            module: self,
            embeddings: &self.embeddings,
            stack: &self.stack,
            context: AttentionMask::of_documents(tokens.documents).into(),
            coefficients,
            seeds,
            recompute: pass.recompute,
        };
        stack.gradients(embedded, loss, sink)
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
    /// Computes `loss` and its gradients with respect to all parameters, which are handed to `sink` as soon as they are
    /// complete. `loss` maps the final hidden states, `[batch, seq, d_model]`, to `[1]`.
    ///
    /// If the model has dropout, the backend's random state is reseeded.
    pub fn streamed_gradients(
        &self,
        input: impl Into<EncoderInput<B>>,
        pass: TrainingPass,
        loss: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 1>,
        sink: GradientSink<'_, B>,
    ) -> Tensor<Inner<B>, 1> {
        let seeds = DropoutSeeds::<B>::new(self.uses_dropout(), pass, self.device());
        seeds.seed(0);
        let (embedded, context) = self.embedded_with_context(input);
        let (head, of_head) = (self.stack.blocks.len() + 1, seeds.clone());
        let loss = |states| {
            of_head.seed(head);
            loss(states)
        };
        let stack = StackPass {
            module: self,
            embeddings: &self.embeddings,
            stack: &self.stack,
            context,
            coefficients: RouterCoefficients::default(),
            seeds,
            recompute: pass.recompute,
        };
        stack.gradients(embedded, loss, Some(sink)).loss
    }

    /// True if training draws dropout masks.
    pub fn uses_dropout(&self) -> bool {
        let settings = self.config().settings();
        settings.dropout > 0.0 || settings.attention_dropout > 0.0
    }
}

impl<B: TrainingBackend> EncoderDecoder<B> {
    /// Computes `loss` and its gradients with respect to all parameters, which are handed to `sink`. `loss` maps the
    /// decoder's hidden states before the head, `[batch, target, d_model]`, to `[1]`. `source` is `[batch, source]`, with a
    /// padding mask that is false at padding tokens; `target` is the decoder's input, `[batch, target]`. Activations are
    /// not recomputed.
    ///
    /// If the model has dropout, the backend's random state is reseeded.
    pub fn streamed_gradients(
        &self,
        source: Tensor<B, 2, Int>,
        padding: Option<Tensor<B, 2, Bool>>,
        target: Tensor<B, 2, Int>,
        pass: TrainingPass,
        loss: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 1>,
        sink: GradientSink<'_, B>,
    ) -> Tensor<Inner<B>, 1> {
        let seeds = DropoutSeeds::<B>::new(self.uses_dropout(), pass, self.device());
        seeds.seed(0);
        let source = self.encode(source, padding);
        seeds.seed(1);
        let loss = loss(self.hidden(target, &source, None));
        let value = loss.clone().inner();
        let mut gradients = loss.backward();
        sink(complete_gradients(self, &HashSet::new(), &mut gradients));
        value
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
struct StackPass<'a, B: TrainingBackend, M, E> {
    /// The model.
    module: &'a M,
    /// Its part before the blocks.
    embeddings: &'a E,
    stack: &'a Stack<B>,
    context: StackContext<'a, B>,
    coefficients: RouterCoefficients,
    seeds: DropoutSeeds<B>,
    recompute: bool,
}

/// The graph of a block.
struct BlockGraph<B: TrainingBackend> {
    /// Its leaf, `[batch, seq, d_model]`.
    input: Tensor<B, 3>,
    output: Tensor<B, 3>,
    routing: Option<Routing<B>>,
}

impl<B: TrainingBackend, M: Module<B>, E: Module<B>> StackPass<'_, B, M, E> {
    /// Differentiates `loss` of the stack's output, block by block.
    fn gradients(
        &self,
        embedded: Tensor<B, 3>,
        loss: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 1>,
        mut sink: Option<GradientSink<'_, B>>,
    ) -> PassGradients<B> {
        let Self { stack, seeds, .. } = self;
        let blocks = &stack.blocks;
        // Blocks from here on have a backward pass. It is 0 if the embeddings have one.
        let first = match is_trained(self.embeddings) {
            true => 0,
            false => (blocks.iter().position(is_trained)).unwrap_or(blocks.len()),
        };
        let mut graphs = Vec::with_capacity(blocks.len());
        let mut routings = Vec::new();
        let mut x = embedded.clone().inner();
        for i in 0..blocks.len() {
            let graph = self.run(i, x.clone(), i >= first && !self.recompute);
            routings.push(graph.routing.clone());
            let output = graph.output.clone().inner();
            if i >= first {
                // Without a graph, only the input is kept.
                graphs.push(match self.recompute {
                    true => Err(x),
                    false => Ok(graph),
                });
            }
            x = output;
        }

        let mut last = Tensor::<B, 3>::from_inner(x);
        if first < blocks.len() || is_trained(self.embeddings) {
            last = last.require_grad();
        }
        let loss = loss(stack.finish(last.clone()));
        let value = loss.clone().inner();
        let mut all = loss.backward();
        let mut grad = last.grad_remove(&mut all);
        drop(last);
        if let Some(sink) = &mut sink {
            let mut later = ids(self.embeddings);
            later.extend(blocks.iter().flat_map(ids));
            sink(complete_gradients(self.module, &later, &mut all));
        }

        let in_order: Vec<_> = routings.iter().flatten().cloned().collect();
        let expert_load = ExpertLoad::of(&in_order);
        let routers = RouterLoss::of(self.coefficients, &expert_load, &in_order, &seeds.device);
        drop(in_order);
        routings.truncate(first);
        let mut router_loss: Option<Tensor<Inner<B>, 1>> = None;
        let mut router_part = |routing: Option<Routing<B>>| {
            let part = routers.as_ref()?.part(&routing?);
            let value = part.clone().inner();
            router_loss = Some(match router_loss.take() {
                Some(sum) => sum + value,
                None => value,
            });
            Some(part)
        };
        for (i, graph) in (first..blocks.len()).zip(graphs).rev() {
            let BlockGraph {
                input,
                output,
                routing,
            } = graph.unwrap_or_else(|input| self.run(i, input, true));
            let mut grads = backward(output, grad, router_part(routing));
            grad = input.grad_remove(&mut grads);
            let block = &blocks[i];
            match &mut sink {
                Some(sink) => sink(complete_gradients(block, &HashSet::new(), &mut grads)),
                None => move_gradients(block, grads, &mut all),
            }
        }
        for routing in routings.into_iter().rev() {
            router_part(routing);
        }
        if is_trained(self.embeddings) {
            // A tied token table has a gradient from the head, to which the embedding's is added.
            let embedded = with_gradients(embedded, self.embeddings, &mut all);
            move_gradients(self.embeddings, backward(embedded, grad, None), &mut all);
        }
        if let Some(sink) = &mut sink {
            sink(complete_gradients(
                self.embeddings,
                &HashSet::new(),
                &mut all,
            ));
        }
        PassGradients {
            loss: value,
            router_loss,
            gradients: all,
            expert_load,
        }
    }

    /// Runs block `i`, with a graph if `tracked`.
    fn run(&self, i: usize, input: Tensor<Inner<B>, 3>, tracked: bool) -> BlockGraph<B> {
        self.seeds.seed(i + 1);
        let mut input = Tensor::<B, 3>::from_inner(input);
        let mut routings = Vec::new();
        let mut context = self.stack.context(i, &self.context);
        context.routings = Some(&mut routings);
        let block = &self.stack.blocks[i];
        let output = match tracked {
            true => {
                input = input.require_grad();
                block.run(input.clone(), context)
            }
            // Dropout acts only under autodiff. Without parameters that require gradients, the graph keeps nothing.
            false => block.clone().no_grad().run(input.clone(), context),
        };
        BlockGraph {
            input,
            output,
            routing: routings.pop(),
        }
    }
}

/// Runs the backward pass of a graph whose output has the gradient `grad`, 0 by default, and of a term of the loss that
/// is computed in it.
fn backward<B: TrainingBackend>(
    output: Tensor<B, 3>,
    grad: Option<Tensor<Inner<B>, 3>>,
    term: Option<Tensor<B, 1>>,
) -> B::Gradients {
    let grad = grad.unwrap_or_else(|| output.clone().inner().zeros_like());
    let term = term.unwrap_or_else(|| Tensor::zeros([1], &output.device()));
    ops::with_gradient(term, output, Tensor::from_inner(grad)).backward()
}

/// `x`, whose backward pass continues from the gradients of a module's parameters, which are taken from `all`.
fn with_gradients<B: TrainingBackend, M: Module<B>>(
    x: Tensor<B, 3>,
    module: &M,
    all: &mut B::Gradients,
) -> Tensor<B, 3> {
    struct WithGradients<'a, B: TrainingBackend> {
        x: Tensor<B, 3>,
        all: &'a mut B::Gradients,
    }
    impl<B: TrainingBackend> ParamVisitor<B> for WithGradients<'_, B> {
        fn visit<const D: usize>(&mut self, _path: &str, _id: ParamId, value: Tensor<B, D>) {
            if let Some(gradient) = value.grad_remove(self.all) {
                let gradient = Tensor::from_inner(gradient);
                self.x = ops::with_gradient(self.x.clone(), value, gradient);
            }
        }
    }
    let mut with_gradients = WithGradients { x, all };
    visit_params(module, &mut with_gradients);
    with_gradients.x
}

/// Moves the gradients of a module's parameters from `from` to `all`.
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
        if let Some(grad) = value.grad_remove(self.from) {
            value.grad_replace(self.all, grad);
        }
    }
}

/// Takes the gradients of a module's parameters, except for those in `others`.
fn complete_gradients<B: TrainingBackend, M: Module<B>>(
    module: &M,
    others: &HashSet<ParamId>,
    from: &mut B::Gradients,
) -> Vec<CompleteGradient<Inner<B>>> {
    let mut taken = GradientTaker::<B> {
        others,
        from,
        taken: Vec::new(),
    };
    visit_params(module, &mut taken);
    taken.taken
}

struct GradientTaker<'a, B: TrainingBackend> {
    others: &'a HashSet<ParamId>,
    from: &'a mut B::Gradients,
    taken: Vec<CompleteGradient<Inner<B>>>,
}

impl<B: TrainingBackend> ParamVisitor<B> for GradientTaker<'_, B> {
    fn visit<const D: usize>(&mut self, _path: &str, id: ParamId, value: Tensor<B, D>) {
        if self.others.contains(&id) {
            return;
        }
        let gradient = value.grad_remove(self.from);
        let gradient = gradient.map(|gradient| gradient.into_primitive().tensor());
        self.taken.push(CompleteGradient { id, gradient });
    }
}

/// The parameters of a module.
fn ids<B: TrainingBackend, M: Module<B>>(module: &M) -> HashSet<ParamId> {
    struct Ids(HashSet<ParamId>);
    impl<B: TrainingBackend> ParamVisitor<B> for Ids {
        fn visit<const D: usize>(&mut self, _path: &str, id: ParamId, _value: Tensor<B, D>) {
            self.0.insert(id);
        }
    }
    let mut ids = Ids(HashSet::new());
    visit_params::<B, M>(module, &mut ids);
    ids.0
}

/// Returns true if a parameter of a module requires a gradient.
fn is_trained<B: TrainingBackend, M: Module<B>>(module: &M) -> bool {
    struct Trained(bool);
    impl<B: TrainingBackend> ParamVisitor<B> for Trained {
        fn visit<const D: usize>(&mut self, _path: &str, _id: ParamId, value: Tensor<B, D>) {
            self.0 |= value.is_require_grad();
        }
    }
    let mut trained = Trained(false);
    visit_params::<B, M>(module, &mut trained);
    trained.0
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
