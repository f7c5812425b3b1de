//! The gradients of a module's parameters, taken from a backward pass.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::module::{Module, ParamId};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;
use emberlm_kernels::{TrainingBackend, ops};

use super::Inner;
use crate::params::{ParamVisitor, visit_param_ids, visit_params};

/// A parameter whose gradient is complete.
pub struct CompleteGradient<B: BurnBackend> {
    /// The parameter.
    pub id: ParamId,
    /// Its gradient; `None` if the loss does not depend on it.
    pub gradient: Option<FloatTensor<B>>,
}

type Take<B> = Box<dyn FnMut(Vec<CompleteGradient<Inner<B>>>) + Send>;

/// Takes the gradients of the head, of each block from the last one on, and of the embeddings. Those that are complete later
/// than the others of their block are taken at the end. It is called during the backward pass.
pub struct GradientSink<B: TrainingBackend>(Arc<Mutex<Option<Take<B>>>>);

impl<B: TrainingBackend> Clone for GradientSink<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B: TrainingBackend> GradientSink<B> {
    /// A sink that passes gradients to `take`.
    pub fn new(take: impl FnMut(Vec<CompleteGradient<Inner<B>>>) + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(take)))))
    }

    /// Passes gradients on.
    pub fn take(&self, complete: Vec<CompleteGradient<Inner<B>>>) {
        if let Some(take) = &mut *locked(&self.0) {
            take(complete);
        }
    }

    /// Drops the function that takes gradients. Later ones are lost.
    pub fn close(&self) {
        *locked(&self.0) = None;
    }
}

fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands the gradients of one backward pass to a sink while the pass continues.
pub(super) struct StreamedPass<B: TrainingBackend> {
    sink: GradientSink<B>,
    /// The parameters whose gradients were handed over.
    taken: Arc<Mutex<HashSet<ParamId>>>,
}

impl<B: TrainingBackend> StreamedPass<B> {
    pub(super) fn new(sink: GradientSink<B>) -> Self {
        Self {
            sink,
            taken: Arc::default(),
        }
    }

    /// Returns `x`. When the backward pass reaches it, the gradients of the module's parameters, except for those in `others`,
    /// are handed over. The parameters are only used in operations that depend on `x`.
    pub(super) fn after<M: Module<B>>(
        &self,
        x: Tensor<B, 3>,
        module: &M,
        others: &HashSet<ParamId>,
    ) -> Tensor<B, 3> {
        let mut trained = TrainedParameters::<B> {
            others,
            ids: Vec::new(),
            values: Vec::new(),
        };
        visit_params(module, &mut trained);
        let (ids, sink, taken) = (trained.ids, self.sink.clone(), Arc::clone(&self.taken));
        ops::gradient_hook(x, &trained.values, move |gradients| {
            let complete = ids.into_iter().zip(gradients);
            let complete = complete.filter_map(|(id, gradient)| {
                gradient.map(|gradient| CompleteGradient {
                    id,
                    gradient: Some(gradient),
                })
            });
            let complete: Vec<_> = complete.collect();
            locked(&taken).extend(complete.iter().map(|gradient| gradient.id));
            sink.take(complete);
        })
    }

    /// Hands over the other gradients of the module after the pass. A parameter whose gradient was handed over although it
    /// was not complete is handed over again, with the rest of its gradient.
    pub(super) fn finish<M: Module<B>>(self, module: &M, from: &mut B::Gradients) {
        let rest = complete_gradients(module, &HashSet::new(), from).into_iter();
        let taken = locked(&self.taken);
        let rest = rest.filter(|it| it.gradient.is_some() || !taken.contains(&it.id));
        self.sink.take(rest.collect());
    }
}

/// The parameters of a module that require gradients.
struct TrainedParameters<'a, B: TrainingBackend> {
    others: &'a HashSet<ParamId>,
    ids: Vec<ParamId>,
    values: Vec<FloatTensor<B>>,
}

impl<B: TrainingBackend> ParamVisitor<B> for TrainedParameters<'_, B> {
    fn visit<const D: usize>(&mut self, _path: &str, id: ParamId, value: Tensor<B, D>) {
        if value.is_require_grad() && !self.others.contains(&id) {
            self.ids.push(id);
            self.values.push(value.into_primitive().tensor());
        }
    }
}

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
    let mut ids = HashSet::new();
    visit_param_ids(module, |_, id| {
        ids.insert(id);
    });
    ids
}
