//! Training pass: computes the loss and the gradients of every parameter, either with one autodiff graph of the whole
//! decoder or, with activation recomputation, with the graph of one block at a time.
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
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;

use emberlm_kernels::{AttentionMask, TrainingBackend};
use emberlm_system::random::split_mix;

use crate::context::StackContext;
use crate::decoder::Decoder;
use crate::router_loss::{ExpertLoad, RouterCoefficients, RouterLoss};
use crate::tokens::Tokens;
use crate::weights::{ParamVisitor, visit_params};

/// Options of a training pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrainingPass {
    /// True to keep only the blocks' inputs and recompute their activations for the backward pass.
    pub recompute: bool,
    /// Seed of the dropout masks; see [`TrainingPass::dropout_seed`].
    pub dropout_seed: u64,
}

impl TrainingPass {
    /// Returns an endless iterator over the passes of a step's micro-batches.
    pub fn of_step(seed: u64, step: u64, recompute: bool) -> impl Iterator<Item = Self> {
        (0..).map(move |micro_batch| Self {
            recompute,
            dropout_seed: Self::dropout_seed(seed, step, micro_batch),
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
        self.seed_dropout(pass, 0);
        let tokens = tokens.into();
        let embedded = self.embeddings.forward(&tokens, 0);
        let context = AttentionMask::of_documents(tokens.documents).into();
        if pass.recompute {
            return self.recomputed(embedded, &context, pass, coefficients, loss);
        }
        let mut x = embedded;
        let mut routings = Vec::new();
        for (i, block) in self.stack.blocks.iter().enumerate() {
            self.seed_dropout(pass, i + 1);
            let mut context = self.stack.context(i, &context);
            context.routings = Some(&mut routings);
            x = block.run(x, context);
        }
        let loss = loss(self.stack.finish(x));
        let value = loss.clone().inner();
        let expert_load = ExpertLoad::of(&routings);
        let routers = RouterLoss::of(coefficients, &expert_load, &routings, &self.device());
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

    fn recomputed(
        &self,
        embedded: Tensor<B, 3>,
        context: &StackContext<'_, B>,
        pass: TrainingPass,
        coefficients: RouterCoefficients,
        loss: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 1>,
    ) -> PassGradients<B> {
        let mut routings = Vec::new();
        let mut inputs = Vec::with_capacity(self.stack.blocks.len());
        let mut x = embedded.clone().inner();
        for (i, block) in self.stack.blocks.iter().enumerate() {
            self.seed_dropout(pass, i + 1);
            // Dropout acts only under autodiff. Without parameters that require gradients, the graph keeps nothing.
            let block = block.clone().no_grad();
            let input = Tensor::from_inner(x.clone());
            let mut context = self.stack.context(i, context);
            context.routings = Some(&mut routings);
            let output = block.run(input, context);
            inputs.push(x);
            x = output.inner();
        }

        let last = Tensor::<B, 3>::from_inner(x).require_grad();
        let loss = loss(self.stack.finish(last.clone()));
        let value = loss.clone().inner();
        let mut all = loss.backward();
        let mut grad = take_gradient(&last, &mut all);
        drop(last);

        let expert_load = ExpertLoad::of(&routings);
        let routers = RouterLoss::of(coefficients, &expert_load, &routings, &self.device());
        drop(routings);
        let mut router_loss: Option<Tensor<Inner<B>, 1>> = None;
        for (i, block) in self.stack.blocks.iter().enumerate().rev() {
            let Some(input) = inputs.pop() else { break };
            let input = Tensor::<B, 3>::from_inner(input).require_grad();
            self.seed_dropout(pass, i + 1);
            let mut routings = Vec::new();
            let mut context = self.stack.context(i, context);
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
        move_gradients(self, backward(embedded, grad, None), &mut all);
        PassGradients {
            loss: value,
            router_loss,
            gradients: all,
            expert_load,
        }
    }

    /// Seeds the backend's random state for one component: 0 is the embedding, `i + 1` is block `i`.
    fn seed_dropout(&self, pass: TrainingPass, component: usize) {
        let config = self.config();
        if config.dropout() > 0.0 && !config.dropout_sites().is_empty() {
            let seed = split_mix(pass.dropout_seed ^ component as u64);
            B::seed(&self.device(), seed);
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
