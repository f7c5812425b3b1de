//! A training pass through the stacks of a model.

use std::collections::HashSet;

use burn::module::{Module, ParamId};
use burn::tensor::Tensor;
use emberlm_kernels::TrainingBackend;

use super::PassGradients;
use super::gradients::{
    GradientSink, StreamedPass, complete_gradients, ids, move_gradients, take_gradient,
};
use super::stack_pass::{Memory, Receiver, StackPass, backward, leaf};
use crate::nn::embeddings::Embeddings;
use crate::nn::linear::Linear;
use crate::nn::router_loss::{ExpertLoad, RouterCoefficients, RouterLoss};
use crate::nn::stack::Stack;

/// A training pass through the stacks of a model.
pub(super) struct ModelPass<'a, B: TrainingBackend, M> {
    /// The model.
    pub module: &'a M,
    /// Its part before the stacks.
    pub embeddings: &'a Embeddings<B>,
    /// The encoder of an encoder–decoder.
    pub encoder: Option<StackPass<'a, B>>,
    /// The stack whose output the loss reads.
    pub last: StackPass<'a, B>,
    pub coefficients: RouterCoefficients,
    pub recompute: bool,
}

impl<B: TrainingBackend, M: Module<B>> ModelPass<'_, B, M> {
    /// Differentiates `loss` of the last stack's output. All gradients are handed to `sink`, if there is one.
    pub fn gradients(
        self,
        loss: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 1>,
        sink: Option<&GradientSink<B>>,
    ) -> PassGradients<B> {
        match self.recompute {
            true => self.recomputed(loss, sink),
            false => self.whole(loss, sink),
        }
    }

    fn stacks(&self) -> impl Iterator<Item = &Stack<B>> {
        let encoder = self.encoder.iter();
        encoder.chain([&self.last]).map(|pass| pass.stack)
    }

    /// The parameters of the blocks.
    fn of_blocks(&self) -> HashSet<ParamId> {
        self.stacks()
            .flat_map(|stack| stack.blocks.iter().flat_map(ids))
            .collect()
    }

    /// The parameters whose gradients are complete only at the end of the pass: the embeddings, the biases of relative
    /// positions, and the norm after an encoder.
    fn of_inputs(&self) -> HashSet<ParamId> {
        let mut found = ids(self.embeddings);
        found.extend(self.stacks().flat_map(|stack| ids(&stack.relative_bias)));
        let encoder = self.encoder.iter();
        found.extend(encoder.flat_map(|pass| ids(&pass.stack.norm_final)));
        found
    }

    /// Differentiates `loss` of the last stack's output in one graph.
    fn whole(
        self,
        loss: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 1>,
        sink: Option<&GradientSink<B>>,
    ) -> PassGradients<B> {
        let streamed = sink.map(|sink| {
            let mut outside = self.of_blocks();
            outside.extend(self.of_inputs());
            (StreamedPass::new(sink.clone()), outside)
        });
        let streamed_blocks = streamed.as_ref().map(|(streamed, _)| streamed);
        let Self {
            module,
            encoder,
            last,
            coefficients,
            ..
        } = self;
        let device = &last.seeds.device;
        let mut routings = Vec::new();
        let memory = encoder.map(|encoder| {
            let padding = encoder.mask.padding.clone();
            let states = encoder.whole(None, streamed_blocks, &mut routings);
            let states = encoder.finish(states);
            let states = match streamed_blocks {
                Some(streamed) => {
                    let crosses = last.stack.blocks.iter().filter_map(|it| it.cross.as_ref());
                    let readers = crosses.map(|cross| cross.attention.kv.clone());
                    streamed.after(
                        states,
                        &readers.collect::<Vec<Linear<B>>>(),
                        &HashSet::new(),
                    )
                }
                None => states,
            };
            Memory { states, padding }
        });
        let mut x = last.whole(memory.as_ref(), streamed_blocks, &mut routings);
        if let Some((streamed, outside)) = &streamed {
            x = streamed.after(x, module, outside);
        }
        let loss = loss(last.finish(x));
        let value = loss.clone().inner();
        let expert_load = ExpertLoad::of(&routings);
        let routers = RouterLoss::of(coefficients, &expert_load, &routings, device);
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

    /// Differentiates `loss` of the last stack's output block by block.
    fn recomputed(
        self,
        loss: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 1>,
        sink: Option<&GradientSink<B>>,
    ) -> PassGradients<B> {
        let (of_blocks, of_inputs) = (self.of_blocks(), self.of_inputs());
        let Self {
            module,
            encoder,
            last,
            coefficients,
            ..
        } = self;
        let mut routings = Vec::new();
        let encoder = encoder.map(|encoder| {
            let padding = encoder.mask.padding.clone();
            let kept = encoder.kept(None, &mut routings);
            let states = encoder.finish(Tensor::from_inner(kept.last.clone()));
            let states = Tensor::from_inner(states.inner());
            (encoder, kept, Memory { states, padding })
        });
        let memory = encoder.as_ref().map(|(.., memory)| memory);
        let kept = last.kept(memory, &mut routings);

        let top = leaf(kept.last.clone());
        let loss = loss(last.finish(top.clone()));
        let value = loss.clone().inner();
        let mut all = loss.backward();
        let grad = take_gradient(&top, &mut all);
        drop(top);
        if let Some(sink) = sink {
            let outside = &of_blocks | &of_inputs;
            sink.take(complete_gradients(module, &outside, &mut all));
        }

        let expert_load = ExpertLoad::of(&routings);
        let mut to = Receiver {
            all,
            sink,
            routers: RouterLoss::of(coefficients, &expert_load, &routings, &last.seeds.device),
            router_loss: None,
        };
        drop(routings);
        let (inputs, of_states) = last.backward(kept, memory, grad, &mut to);
        move_gradients(module, inputs, &mut to.all);
        if let Some(((encoder, kept, _), of_states)) = encoder.zip(of_states) {
            let top = leaf(kept.last.clone());
            let mut grads = backward((encoder.finish(top.clone()), of_states), None, None);
            let grad = take_gradient(&top, &mut grads);
            drop(top);
            move_gradients(module, grads, &mut to.all);
            let (inputs, _) = encoder.backward(kept, None, grad, &mut to);
            move_gradients(module, inputs, &mut to.all);
        }
        if let Some(sink) = sink {
            let mut taken = ids(module);
            taken.retain(|id| !of_inputs.contains(id));
            sink.take(complete_gradients(module, &taken, &mut to.all));
        }
        PassGradients {
            loss: value,
            router_loss: to.router_loss,
            gradients: to.all,
            expert_load,
        }
    }
}
