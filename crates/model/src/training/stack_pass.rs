//! A training pass through the blocks of a stack.

use std::collections::HashSet;

use burn::module::Module;
use burn::tensor::Tensor;
use emberlm_kernels::{TrainingBackend, ops};

use super::gradients::{
    GradientSink, complete_gradients, ids, is_trained, move_gradients, with_gradients,
};
use super::{DropoutSeeds, Inner, PassGradients};
use crate::context::StackContext;
use crate::mixture::Routing;
use crate::router_loss::{ExpertLoad, RouterCoefficients, RouterLoss};
use crate::stack::Stack;

/// A training pass through the blocks of a stack.
pub(super) struct StackPass<'a, B: TrainingBackend, M, E> {
    /// The model.
    pub(super) module: &'a M,
    /// Its part before the blocks.
    pub(super) embeddings: &'a E,
    pub(super) stack: &'a Stack<B>,
    pub(super) context: StackContext<'a, B>,
    pub(super) coefficients: RouterCoefficients,
    pub(super) seeds: DropoutSeeds<B>,
    pub(super) recompute: bool,
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
    pub(super) fn gradients(
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
