//! A hook in the backward pass, which takes gradients while the pass continues.

use std::fmt::{Debug, Formatter};
use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::ops::FloatTensor;

use super::gradient::{saved, take_gradient};
use crate::Backend;

/// Takes the gradients that a backward pass has accumulated for some tensors; `None` for those that have none.
pub type GradientHook<B> = Box<dyn FnOnce(Vec<Option<FloatTensor<B>>>) + Send>;

#[derive(Debug)]
struct HookBackward;

/// The tensors whose gradients are taken, and the hook, which runs once. Burn requires that states can be cloned.
#[derive(Clone)]
struct Hooked<B: Backend> {
    taken: Vec<FloatTensor<Autodiff<B>>>,
    hook: Arc<Mutex<Option<GradientHook<B>>>>,
}

impl<B: Backend> Debug for Hooked<B> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooked").finish_non_exhaustive()
    }
}

impl<B: Backend> Backward<B, 1> for HookBackward {
    type State = Hooked<B>;

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node);
        if let [Some(x)] = ops.parents {
            grads.register::<B>(x.id, grad);
        }
        let Hooked { taken, hook } = ops.state;
        let hook = hook.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(hook) = hook {
            hook(taken.iter().map(|of| take_gradient(grads, of)).collect());
        }
    }
}

pub(super) fn gradient_hook<B: Backend, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    taken: &[FloatTensor<Autodiff<B, C>>],
    hook: GradientHook<B>,
) -> FloatTensor<Autodiff<B, C>> {
    let hooked = Hooked::<B> {
        taken: taken.iter().map(saved::<B>).collect(),
        hook: Arc::new(Mutex::new(Some(hook))),
    };
    with_parents!(HookBackward, C, [x.node], hooked, x.primitive)
}
