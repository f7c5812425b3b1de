//! The gradients of a module's parameters, taken from a backward pass.

use std::collections::HashSet;

use burn::module::{Module, ParamId};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;
use emberlm_kernels::TrainingBackend;

use super::Inner;
use crate::weights::{ParamVisitor, visit_params};

/// A parameter whose gradient is complete.
pub struct CompleteGradient<B: BurnBackend> {
    /// The parameter.
    pub id: ParamId,
    /// Its gradient; `None` if the loss does not depend on it.
    pub gradient: Option<FloatTensor<B>>,
}

/// Takes the gradients of the head, of each block from the last one on, and of the embeddings.
pub type GradientSink<'a, B> = &'a mut dyn FnMut(Vec<CompleteGradient<Inner<B>>>);

/// Removes and returns the gradient of `x`; zeros if there is none.
pub(super) fn take_gradient<B: TrainingBackend>(
    x: &Tensor<B, 3>,
    grads: &mut B::Gradients,
) -> Tensor<Inner<B>, 3> {
    x.grad_remove(grads)
        .unwrap_or_else(|| x.clone().inner().zeros_like())
}

/// Moves the gradients of a module's parameters from `from` to `all`, adding to existing ones.
pub(super) fn move_gradients<B: TrainingBackend, M: Module<B>>(
    module: &M,
    mut from: B::Gradients,
    all: &mut B::Gradients,
) {
    let from = &mut from;
    visit_params(module, &mut GradientMover::<B> { from, all });
}

struct GradientMover<'a, B: TrainingBackend> {
    from: &'a mut B::Gradients,
    all: &'a mut B::Gradients,
}

impl<B: TrainingBackend> ParamVisitor<B> for GradientMover<'_, B> {
    fn visit<const D: usize>(&mut self, _path: &str, _id: ParamId, value: Tensor<B, D>) {
        let Some(grad) = value.grad_remove(self.from) else {
            return;
        };
        // A tied token table has a gradient from the head, too.
        let grad = match value.grad_remove(self.all) {
            Some(before) => grad + before,
            None => grad,
        };
        value.grad_replace(self.all, grad);
    }
}

/// Takes the gradients of a module's parameters, except for those in `others`.
pub(super) fn complete_gradients<B: TrainingBackend, M: Module<B>>(
    module: &M,
    others: &HashSet<ParamId>,
    from: &mut B::Gradients,
) -> Vec<CompleteGradient<Inner<B>>> {
    let mut taken = GradientTaker::<B> {
        others,
        from,
        taken: Vec::new(),
    };
    visit_params(module, &mut taken);
    taken.taken
}

struct GradientTaker<'a, B: TrainingBackend> {
    others: &'a HashSet<ParamId>,
    from: &'a mut B::Gradients,
    taken: Vec<CompleteGradient<Inner<B>>>,
}

impl<B: TrainingBackend> ParamVisitor<B> for GradientTaker<'_, B> {
    fn visit<const D: usize>(&mut self, _path: &str, id: ParamId, value: Tensor<B, D>) {
        if self.others.contains(&id) {
            return;
        }
        let gradient = value.grad_remove(self.from);
        let gradient = gradient.map(|gradient| gradient.into_primitive().tensor());
        self.taken.push(CompleteGradient { id, gradient });
    }
}

/// The parameters of a module.
pub(super) fn ids<B: TrainingBackend, M: Module<B>>(module: &M) -> HashSet<ParamId> {
    struct Ids(HashSet<ParamId>);
    impl<B: TrainingBackend> ParamVisitor<B> for Ids {
        fn visit<const D: usize>(&mut self, _path: &str, id: ParamId, _value: Tensor<B, D>) {
            self.0.insert(id);
        }
    }
    let mut ids = Ids(HashSet::new());
    visit_params::<B, M>(module, &mut ids);
    ids.0
}
