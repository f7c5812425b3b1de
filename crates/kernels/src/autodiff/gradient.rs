//! Accumulation into gradients that other operations have registered before.

use std::sync::Arc;

use burn::backend::Autodiff;
use burn::backend::autodiff::grads::Gradients;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

/// Clones a tensor for the state of a backward pass. The clone has a separate reference count; otherwise the
/// graph, which owns the state, would keep itself alive.
pub(super) fn saved<B: Backend>(tensor: &FloatTensor<Autodiff<B>>) -> FloatTensor<Autodiff<B>> {
    let mut kept = tensor.clone();
    kept.rc = Arc::new(kept.node.id);
    kept
}

/// Removes and returns the gradient accumulated for a tensor so far. The caller adds its own gradient to it in
/// the same pass over memory.
pub(super) fn take_gradient<B: Backend>(
    grads: &mut Gradients,
    of: &FloatTensor<Autodiff<B>>,
) -> Option<FloatTensor<B>> {
    grads.remove::<B>(of)
}
