//! One stack in a training pass.

use burn::module::Module;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Bool, Int, Tensor};
use emberlm_kernels::{AttentionMask, TrainingBackend};

use super::gradients::{
    GradientSink, StreamedPass, complete_gradients, ids, move_gradients, take_gradient,
};
use super::{DropoutSeeds, Inner};
use crate::nn::block::Block;
use crate::nn::context::{AttentionContext, BlockContext, BlockMemory};
use crate::nn::mixture::Routing;
use crate::nn::router_loss::RouterLoss;
use crate::nn::stack::Stack;

/// One stack in a training pass.
pub(super) struct StackPass<'a, B: TrainingBackend> {
    pub stack: &'a Stack<B>,
    /// Embeds the stack's tokens, `[batch, seq, d_model]`.
    pub embed: Box<dyn Fn() -> Tensor<B, 3> + 'a>,
    /// The stack's tokens, `[batch, seq]`, if value embeddings may read them.
    pub ids: Option<Tensor<B, 2, Int>>,
    pub mask: AttentionMask<B>,
    /// The number of the embedding among the components that have seeds; the blocks and the end follow.
    pub component: usize,
    pub seeds: DropoutSeeds<B>,
}

/// The states that a decoder's cross-attentions read, `[batch, memory, d_model]`, and their padding mask.
#[derive(Clone)]
pub(super) struct Memory<B: TrainingBackend> {
    pub states: Tensor<B, 3>,
    pub padding: Option<Tensor<B, 2, Bool>>,
}

/// The tensors that the blocks of a stack read beside the residual stream; they may be leaves of a graph.
#[derive(Clone)]
struct Beside<B: BurnBackend> {
    /// The biases of relative positions.
    bias: Option<Tensor<B, 3>>,
    /// The stack's input, if the blocks mix it into their own.
    embedded: Option<Tensor<B, 3>>,
}

impl<B: BurnBackend> Beside<B> {
    /// The same values in another graph.
    fn map<T: BurnBackend>(self, change: impl Fn(Tensor<B, 3>) -> Tensor<T, 3>) -> Beside<T> {
        Beside {
            bias: self.bias.map(&change),
            embedded: self.embedded.map(&change),
        }
    }
}

/// The values kept of a stack whose blocks are computed again in the backward pass.
pub(super) struct Kept<B: TrainingBackend> {
    beside: Beside<Inner<B>>,
    /// The input of each block.
    inputs: Vec<Tensor<Inner<B>, 3>>,
    /// The last block's output.
    pub last: Tensor<Inner<B>, 3>,
}

/// The receiver of gradients in the backward pass of a recomputed stack.
pub(super) struct Receiver<'s, B: TrainingBackend> {
    pub all: B::Gradients,
    pub sink: Option<&'s GradientSink<B>>,
    /// The losses of the routers.
    pub routers: Option<RouterLoss<B>>,
    /// Their sum.
    pub router_loss: Option<Tensor<Inner<B>, 1>>,
}

impl<B: TrainingBackend> StackPass<'_, B> {
    /// Computes the embeddings, and what else the blocks read.
    fn begin(&self) -> (Tensor<B, 3>, Beside<B>) {
        self.seeds.seed(self.component);
        let embedded = (self.embed)();
        let relative = self.stack.relative_bias.as_ref();
        let beside = Beside {
            bias: relative.map(|relative| relative.bias(0, embedded.dims()[1])),
            embedded: self.stack.mixes().then(|| embedded.clone()),
        };
        (embedded, beside)
    }

    /// Runs a block on the input, what is read beside it, and the memory, any of which may be leaves of a graph.
    fn block(
        &self,
        layer: usize,
        block: &Block<B>,
        x: Tensor<B, 3>,
        beside: Beside<B>,
        memory: Option<&Memory<B>>,
        routings: &mut Vec<Routing<B>>,
    ) -> Tensor<B, 3> {
        self.seeds.seed_part(self.component + layer + 1);
        let heads = memory.zip(block.cross.as_ref()).map(|(memory, cross)| {
            let states = memory.states.clone();
            cross.attention.project_memory(states)
        });
        let memory = heads.as_ref().map(|heads| BlockMemory {
            heads,
            padding: memory.and_then(|memory| memory.padding.clone()),
        });
        let mask = AttentionMask {
            bias: beside.bias,
            ..self.mask.clone()
        };
        let context = BlockContext {
            attention: AttentionContext {
                rotary: self.stack.rotary(layer),
                mask,
                cache: None,
                ids: self.ids.clone(),
            },
            memory,
            embedded: beside.embedded,
            routings: Some(routings),
        };
        block.run(x, context)
    }

    /// Maps the last block's output to the stack's.
    pub fn finish(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let end = self.component + self.stack.blocks.len() + 1;
        self.seeds.seed_part(end);
        self.stack.finish(x)
    }

    /// Computes the last block's output in one graph. Streamed gradients of a block are handed over when the backward pass
    /// reaches the block's input.
    pub fn whole(
        &self,
        memory: Option<&Memory<B>>,
        streamed: Option<&StreamedPass<B>>,
        routings: &mut Vec<Routing<B>>,
    ) -> Tensor<B, 3> {
        let (mut x, beside) = self.begin();
        for (layer, block) in self.stack.blocks.iter().enumerate() {
            if let Some(streamed) = streamed {
                // Those of a memory's keys and values are complete when the pass reaches the memory.
                let of_memory = block.cross.as_ref().map(|cross| ids(&cross.attention.kv));
                x = streamed.after(x, block, &of_memory.unwrap_or_default());
            }
            x = self.block(layer, block, x, beside.clone(), memory, routings);
        }
        x
    }

    /// Computes the last block's output without a graph, and keeps the inputs of the blocks.
    pub fn kept(&self, memory: Option<&Memory<B>>, routings: &mut Vec<Routing<B>>) -> Kept<B> {
        let (embedded, beside) = self.begin();
        let (mut x, beside) = (embedded.inner(), beside.map(Tensor::inner));
        let mut inputs = Vec::with_capacity(self.stack.blocks.len());
        for (layer, block) in self.stack.blocks.iter().enumerate() {
            // Dropout acts only under autodiff. Without parameters that require gradients, the graph keeps nothing.
            let block = block.clone().no_grad();
            let input = Tensor::from_inner(x.clone());
            let beside = beside.clone().map(Tensor::from_inner);
            let output = self.block(layer, &block, input, beside, memory, routings);
            inputs.push(x);
            x = output.inner();
        }
        Kept {
            beside,
            inputs,
            last: x,
        }
    }

    /// Computes the blocks again, from the last one on, and their gradients from `grad`, that of the last output.
    /// Then computes the embeddings and what else the blocks read again: while their graph is alive, those of
    /// blocks run backward, and Burn 0.21 sometimes drops nodes of a graph that shares a parameter with another one.
    /// Returns their gradients, and that of the memory's states.
    pub fn backward(
        &self,
        kept: Kept<B>,
        memory: Option<&Memory<B>>,
        mut grad: Tensor<Inner<B>, 3>,
        to: &mut Receiver<'_, B>,
    ) -> (B::Gradients, Option<Tensor<Inner<B>, 3>>) {
        let Kept {
            beside,
            mut inputs,
            last,
        } = kept;
        drop(last);
        let (mut of_bias, mut of_embedded, mut of_states) = (None, None, None);
        for (layer, block) in self.stack.blocks.iter().enumerate().rev() {
            let Some(input) = inputs.pop() else { break };
            let input = leaf(input);
            let beside = beside.clone().map(leaf);
            let memory = memory.cloned().map(|memory| Memory {
                states: leaf(memory.states.inner()),
                ..memory
            });
            let mut routings = Vec::new();
            let (x, read) = (input.clone(), memory.as_ref());
            let output = self.block(layer, block, x, beside.clone(), read, &mut routings);
            let part = to.routers.as_ref().zip(routings.pop());
            let part = part.map(|(routers, routing)| routers.part(&routing));
            if let Some(part) = &part {
                add::<B, 1>(&mut to.router_loss, part.clone().inner());
            }
            let mut grads = backward((output, grad), None, part);
            grad = take_gradient(&input, &mut grads);
            if let Some(bias) = &beside.bias {
                add::<B, 3>(&mut of_bias, take_gradient(bias, &mut grads));
            }
            if let Some(embedded) = &beside.embedded {
                add::<B, 3>(&mut of_embedded, take_gradient(embedded, &mut grads));
            }
            if let Some(memory) = &memory {
                add::<B, 3>(&mut of_states, take_gradient(&memory.states, &mut grads));
            }
            match to.sink {
                Some(sink) => {
                    sink.take(complete_gradients(block, &Default::default(), &mut grads));
                }
                None => move_gradients(block, grads, &mut to.all),
            }
        }
        let grad = match of_embedded {
            Some(of_embedded) => grad + of_embedded,
            None => grad,
        };
        let (embedded, beside) = self.begin();
        let of_inputs = backward((embedded, grad), beside.bias.zip(of_bias), None);
        (of_inputs, of_states)
    }
}

/// The value as a leaf of a graph that takes its gradient.
pub(super) fn leaf<B: TrainingBackend>(value: Tensor<Inner<B>, 3>) -> Tensor<B, 3> {
    Tensor::from_inner(value).require_grad()
}

/// Adds to a sum, which begins with the first value.
fn add<B: TrainingBackend, const D: usize>(
    sum: &mut Option<Tensor<Inner<B>, D>>,
    value: Tensor<Inner<B>, D>,
) {
    *sum = Some(match sum.take() {
        Some(sum) => sum + value,
        None => value,
    });
}

/// Runs the backward pass of a graph whose outputs have the given gradients, and of a term of the loss that is computed in
/// it.
pub(super) fn backward<B: TrainingBackend>(
    (output, grad): (Tensor<B, 3>, Tensor<Inner<B>, 3>),
    other: Option<(Tensor<B, 3>, Tensor<Inner<B>, 3>)>,
    term: Option<Tensor<B, 1>>,
) -> B::Gradients {
    let of = |output: Tensor<B, 3>, grad| (output * Tensor::from_inner(grad)).sum();
    let mut sum = of(output, grad);
    if let Some((output, grad)) = other {
        sum = sum + of(output, grad);
    }
    match term {
        Some(term) => (sum + term).backward(),
        None => sum.backward(),
    }
}
