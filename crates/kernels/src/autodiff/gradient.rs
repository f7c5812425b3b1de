//! Gradients that are there before an operation's own.

use std::sync::Arc;

use burn::backend::Autodiff;
use burn::backend::autodiff::grads::Gradients;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

/// A tensor for a backward's state, which the graph holds: with a separate reference count, so that the graph does not keep itself
/// alive through it.
pub(super) fn kept<B: Backend>(tensor: &FloatTensor<Autodiff<B>>) -> FloatTensor<Autodiff<B>> {
    let mut kept = tensor.clone();
    kept.rc = Arc::new(kept.node.id);
    kept
}

/// Takes what has flown into a tensor so far, for an operation to add its own to in the same pass over memory.
pub(super) fn taken<B: Backend>(
    grads: &mut Gradients,
    of: &FloatTensor<Autodiff<B>>,
) -> Option<FloatTensor<B>> {
    grads.remove::<B>(of)
}
