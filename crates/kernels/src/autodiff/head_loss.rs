//! The backward pass of the head. The forward pass computes the gradients together with the loss, so the logits
//! are computed once and only exist in blocks. The backward pass multiplies these gradients by the scalar
//! gradient of the loss.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::ops::{FloatTensor, IntTensor};

use crate::{Backend, HeadLossOptions, Precision};

#[derive(Debug)]
struct HeadLossBackward;

impl<B: Backend> Backward<B, 2> for HeadLossBackward {
    /// The gradients of the hidden states and of the weight, which is in a single part.
    type State = (FloatTensor<B>, Vec<FloatTensor<B>>);

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node); // [1]
        let (hidden_grad, weight_grads) = ops.state;
        let [hidden, weight] = ops.parents;
        if let Some(node) = hidden {
            grads.register::<B>(node.id, B::scaled(hidden_grad, grad.clone()));
        }
        if let Some((node, weight_grad)) = weight.zip(weight_grads.into_iter().next()) {
            grads.register::<B>(node.id, B::scaled(weight_grad, grad));
        }
    }
}

pub(super) fn single_part<B: Backend, C: CheckpointStrategy>(
    hidden: FloatTensor<Autodiff<B, C>>,
    weight: FloatTensor<Autodiff<B, C>>,
    targets: IntTensor<B>,
    options: HeadLossOptions,
    precision: Precision,
) -> FloatTensor<Autodiff<B, C>> {
    let trains_weight = weight.is_tracked();
    match HeadLossBackward
        .prepare::<C>([hidden.node, weight.node])
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prep) => {
            let (hidden, weight) = (hidden.primitive, vec![weight.primitive]);
            if !trains_weight {
                let (loss, hidden) =
                    B::head_loss_hidden_gradient(hidden, weight, targets, options, precision);
                return prep.finish((hidden, Vec::new()), loss);
            }
            let gradients = B::head_loss_gradients(hidden, weight, targets, options, precision);
            prep.finish((gradients.hidden, gradients.weights), gradients.loss)
        }
        OpsKind::UnTracked(prep) => {
            let weight = vec![weight.primitive];
            prep.finish(B::head_loss(
                hidden.primitive,
                weight,
                targets,
                options,
                precision,
            ))
        }
    }
}
