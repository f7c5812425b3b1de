//! A training pass through the blocks of a stack.

use std::collections::HashSet;

use burn::module::{Module, ParamId};
use burn::tensor::Tensor;
use emberlm_kernels::TrainingBackend;

use super::gradients::{
    GradientSink, StreamedPass, complete_gradients, ids, move_gradients, take_gradient,
};
use super::{DropoutSeeds, Inner, PassGradients};
use crate::nn::context::StackContext;
use crate::nn::router_loss::{ExpertLoad, RouterCoefficients, RouterLoss};
use crate::nn::stack::Stack;

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

impl<B: TrainingBackend, M: Module<B>, E: Module<B>> StackPass<'_, B, M, E> {
    /// Differentiates `loss` of the stack's output. All gradients are handed to `sink`, if there is one.
    pub(super) fn gradients(
        self,
        embedded: Tensor<B, 3>,
        loss: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 1>,
        sink: Option<&GradientSink<B>>,
    ) -> PassGradients<B> {
        match self.recompute {
            true => self.recomputed(embedded, loss, sink),
            false => self.whole(embedded, loss, sink),
        }
    }

    /// Differentiates `loss` of the stack's output in one graph.
    fn whole(
        self,
        embedded: Tensor<B, 3>,
        loss: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 1>,
        sink: Option<&GradientSink<B>>,
    ) -> PassGradients<B> {
        let streamed = sink.map(|sink| {
            let others = self.ids_of_blocks_and_embeddings();
            (StreamedPass::new(sink.clone()), others)
        });
        let Self {
            module,
            stack,
            context,
            coefficients,
            seeds,
            ..
        } = self;
        let mut x = embedded;
        let mut routings = Vec::new();
        for (i, block) in stack.blocks.iter().enumerate() {
            if let Some((streamed, _)) = &streamed {
                x = streamed.after(x, block, &HashSet::new());
            }
            seeds.seed(i + 1);
            let mut context = stack.context(i, &context);
            context.routings = Some(&mut routings);
            x = block.run(x, context);
        }
        if let Some((streamed, others)) = &streamed {
            x = streamed.after(x, module, others);
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
        let of_routers = router_loss.clone().map(Tensor::inner);
        let mut gradients = match router_loss {
            Some(router_loss) => (loss + router_loss).backward(),
            None => loss.backward(),
        };
        if let Some((streamed, _)) = streamed {
            streamed.finish(module, &mut gradients);
        }
        PassGradients {
            loss: value,
            router_loss: of_routers,
            gradients,
            expert_load,
        }
    }

    /// The parameters outside the head.
    fn ids_of_blocks_and_embeddings(&self) -> HashSet<ParamId> {
        let mut found = ids(self.embeddings);
        found.extend(self.stack.blocks.iter().flat_map(ids));
        found
    }

    /// Differentiates `loss` of the stack's output block by block.
    fn recomputed(
        self,
        embedded: Tensor<B, 3>,
        loss: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 1>,
        sink: Option<&GradientSink<B>>,
    ) -> PassGradients<B> {
        let others = self.ids_of_blocks_and_embeddings();
        let Self {
            module,
            embeddings,
            stack,
            context,
            coefficients,
            seeds,
            ..
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
        if let Some(sink) = sink {
            sink.take(complete_gradients(module, &others, &mut all));
        }

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
            match sink {
                Some(sink) => {
                    sink.take(complete_gradients(block, &HashSet::new(), &mut grads));
                }
                None => move_gradients(block, grads, &mut all),
            }
        }
        move_gradients(embeddings, backward(embedded, grad, None), &mut all);
        if let Some(sink) = sink {
            sink.take(complete_gradients(embeddings, &HashSet::new(), &mut all));
        }
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
