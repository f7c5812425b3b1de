//! A training pass: the loss with the gradients of every parameter, from a graph of the whole decoder or, recomputing,
//! from a graph of one block at a time.
//!
//! ```text
//! whole        tokens ─► embedding ─► block 1 ─► … ─► block n ─► norm, loss        one graph, one backward pass
//!
//! recomputing  tokens ─► embedding ─► x₁ ─► … ─► xₙ ─► xₙ₊₁ ─► norm, loss          no graph of the blocks
//!                                     kept xᵢ
//!              for i = n … 1: block i again on xᵢ, its graph's backward pass from the gradient of xᵢ₊₁ to that of xᵢ
//! ```
//!
//! Recomputing (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost") holds the blocks' inputs,
//! `n_layers · [batch, seq, d_model]`, and the inside of one block, for one more forward pass of every block: about a
//! third more time. What it computes is the same to the bit: a block is the same operations on the same numbers, and its
//! backward pass begins with `Σ xᵢ₊₁ · g`, whose gradient is `1 · g`.
//!
//! The blocks' backward passes are run one after the other from here, not as operations inside of one graph: Burn 0.21 locks
//! a graph during its backward pass, and at the end of every backward pass goes through all graphs that there are, so
//! that one inside of another never ends.

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

/// The options of a training pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrainingPass {
    /// Keep only what each block takes, and compute its inside again for its gradients.
    pub recompute: bool,
    /// The seed of dropout, see [`TrainingPass::dropout_seed`].
    pub dropout_seed: u64,
}

impl TrainingPass {
    /// The passes of a step's micro-batches, without end.
    pub fn of_step(seed: u64, step: u64, recompute: bool) -> impl Iterator<Item = Self> {
        (0..).map(move |micro_batch| Self {
            recompute,
            dropout_seed: Self::dropout_seed(seed, step, micro_batch),
        })
    }

    /// The seed of a micro-batch's dropout. The embedding and each block draw theirs from it and their own number, so
    /// that a block computed again has the masks that it had, also in a run that is resumed at any step.
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
    /// The value of `loss`, a function `[batch, seq, d_model]` to `[1]` of the states before the head, and the
    /// gradients of every parameter that it depends on: `tokens` `[batch, seq]`.
    ///
    /// The backend's random state is reset if the model has dropout.
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
            // Still under autodiff, where dropout acts, but with nothing to differentiate, so that nothing is kept.
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
        let mut grad = taken(&last, &mut all);
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
            let mut grads = back(output, grad, part);
            grad = taken(&input, &mut grads);
            move_gradients(block, grads, &mut all);
        }
        move_gradients(self, back(embedded, grad, None), &mut all);
        PassGradients {
            loss: value,
            router_loss,
            gradients: all,
            expert_load,
        }
    }

    /// Makes what is drawn next a function of the pass and the number of a part: 0 is the embedding, `i + 1` block `i`.
    fn seed_dropout(&self, pass: TrainingPass, part: usize) {
        let config = self.config();
        if config.dropout() > 0.0 && !config.dropout_sites().is_empty() {
            B::seed(&self.device(), split_mix(pass.dropout_seed ^ part as u64));
        }
    }
}

/// The gradients of a graph from its output, whose own gradient is `grad`, and from a term of the loss that is computed in it.
fn back<B: TrainingBackend>(
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

/// Takes the gradient of `x` out of `grads`: zeros where nothing depends on it.
fn taken<B: TrainingBackend>(x: &Tensor<B, 3>, grads: &mut B::Gradients) -> Tensor<Inner<B>, 3> {
    x.grad_remove(grads)
        .unwrap_or_else(|| x.clone().inner().zeros_like())
}

/// Adds the gradients of a module's parameters to those of `all`.
fn move_gradients<B: TrainingBackend, M: Module<B>>(
    module: &M,
    mut from: B::Gradients,
    all: &mut B::Gradients,
) {
    let from = &mut from;
    visit_params(module, &mut Move::<B> { from, all });
}

struct Move<'a, B: TrainingBackend> {
    from: &'a mut B::Gradients,
    all: &'a mut B::Gradients,
}

impl<B: TrainingBackend> ParamVisitor<B> for Move<'_, B> {
    fn visit<const D: usize>(&mut self, _path: &str, _id: ParamId, value: Tensor<B, D>) {
        let Some(grad) = value.grad_remove(self.from) else {
            return;
        };
        // The table of tokens may be the head too.
        let grad = match value.grad_remove(self.all) {
            Some(before) => grad + before,
            None => grad,
        };
        value.grad_replace(self.all, grad);
    }
}
