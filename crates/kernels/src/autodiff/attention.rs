//! The attention's backward, from the kept queries, keys, values and weights.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::ops::{FloatTensor, IntTensor};

use crate::{AttentionOptions, AttentionState, Backend};

#[derive(Debug)]
struct AttentionBackward;

/// What the backward needs.
#[derive(Clone, Debug)]
struct Kept<B: Backend> {
    q: FloatTensor<B>,
    k: FloatTensor<B>,
    v: FloatTensor<B>,
    state: AttentionState<B>,
    options: AttentionOptions,
}

impl<B: Backend> Backward<B, 3> for AttentionBackward {
    type State = Kept<B>;

    fn backward(
        self,
        ops: Ops<Self::State, 3>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node); // [batch, heads, q_len, head_dim]
        let kept = ops.state;
        let made = B::attention_backward(kept.q, kept.k, kept.v, kept.state, grad, kept.options);
        for (parent, grad) in ops.parents.into_iter().zip([made.q, made.k, made.v]) {
            if let Some(node) = parent {
                grads.register::<B>(node.id, grad);
            }
        }
    }
}

/// Dropout acts whether a gradient is asked for or not.
pub(super) fn attention<B: Backend, C: CheckpointStrategy>(
    q: FloatTensor<Autodiff<B, C>>,
    k: FloatTensor<Autodiff<B, C>>,
    v: FloatTensor<Autodiff<B, C>>,
    documents: Option<IntTensor<B>>,
    options: AttentionOptions,
) -> FloatTensor<Autodiff<B, C>> {
    let nodes = [q.node, k.node, v.node];
    let (q, k, v) = (q.primitive, k.primitive, v.primitive);
    let (output, state) =
        B::attention_training(q.clone(), k.clone(), v.clone(), documents, options);
    match AttentionBackward
        .prepare::<C>(nodes)
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prep) => {
            let kept = Kept {
                q,
                k,
                v,
                state,
                options,
            };
            prep.finish(kept, output)
        }
        OpsKind::UnTracked(prep) => prep.finish(output),
    }
}
