//! A step on a module: the update of each parameter that has a gradient.

use std::collections::HashMap;

use burn::module::{AutodiffModule, ParamId};
use burn::optim::adaptor::GradAdaptor;
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensor;
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::weights::{ParamMapper, map_params};

use super::guard::StepFactor;
use super::updates::Updates;
use super::{Optimizer, typed};

/// Returns the module after the update of every parameter that has a gradient.
pub(super) fn apply<B, A, M>(
    optimizer: &mut Optimizer<B>,
    module: M,
    grads: GradAdaptor,
    factor: StepFactor<'_, B>,
    rate: f64,
) -> M
where
    B: Backend,
    A: TrainingBackend + AutodiffBackend<InnerBackend = B>,
    M: AutodiffModule<A>,
{
    let updates = Updates::new(optimizer, factor, rate);
    let mut take = Take { updates, grads };
    let module = map_params::<A, M>(module, &mut take);
    let updated = take.updates.finish().into_iter().collect();
    map_params::<A, M>(module, &mut Put { updated })
}

/// Takes the values that have a gradient out of their parameters and adds their updates. Another handle of a value would
/// prevent its update in place.
struct Take<'a, B: Backend> {
    updates: Updates<'a, B, ParamId>,
    grads: GradAdaptor,
}

impl<B, A> ParamMapper<A> for Take<'_, B>
where
    B: Backend,
    A: TrainingBackend + AutodiffBackend<InnerBackend = B>,
{
    fn map<const D: usize>(
        &mut self,
        path: &str,
        id: ParamId,
        value: Tensor<A, D>,
    ) -> Tensor<A, D> {
        // Gradients of several devices are summed on one device. The parameter is not moved.
        let Some((grad, device)) = self.grads.remove::<B, D>(id) else {
            return value;
        };
        let value = value.inner();
        let own = value.device();
        let grad = match device == own {
            true => grad,
            false => grad.to_device(&own),
        };
        let optimizer = &*self.updates.optimizer;
        let path = match optimizer.parameters.get(id) {
            Some(parameter) => parameter.path.clone(),
            None => path.to_owned(),
        };
        let role = optimizer.role(&path, D);
        self.updates.add(id, &path, &role, value, grad);
        Tensor::from_inner(Tensor::empty([1; D], &own))
    }
}

/// Puts the new values in the places of the old ones.
struct Put<B: Backend> {
    updated: HashMap<ParamId, FloatTensor<B>>,
}

impl<B, A> ParamMapper<A> for Put<B>
where
    B: Backend,
    A: TrainingBackend + AutodiffBackend<InnerBackend = B>,
{
    fn map<const D: usize>(&mut self, _: &str, id: ParamId, value: Tensor<A, D>) -> Tensor<A, D> {
        match self.updated.remove(&id) {
            Some(updated) => Tensor::from_inner(typed(updated)).require_grad(),
            None => value,
        }
    }
}
