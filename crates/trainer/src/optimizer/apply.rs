//! A step on a module: the update of each parameter that has a gradient.

use std::collections::HashMap;

use burn::module::{AutodiffModule, ParamId};
use burn::optim::adaptor::GradAdaptor;
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensor;
use emberlm_kernels::{AdamWInputs, Backend, TrainingBackend, ops};
use emberlm_model::weights::{ParamMapper, map_params};

use super::guard::StepFactor;
use super::{Moments, Optimizer, Rule, UpdateStep, primitive, typed};

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
    let mut update = Update {
        optimizer,
        grads,
        factor,
        rate,
        waiting: Vec::new(),
    };
    let module = map_params::<A, M>(module, &mut update);
    let updated = update.finish();
    match updated.is_empty() {
        true => module,
        false => map_params::<A, M>(module, &mut Put { updated }),
    }
}

struct Update<'a, B: Backend> {
    optimizer: &'a mut Optimizer<B>,
    grads: GradAdaptor,
    factor: StepFactor<'a, B>,
    rate: f64,
    /// The updates by AdamW, which are made at the end, since a device takes several at once.
    waiting: Vec<(ParamId, String, AdamWInputs<B>)>,
}

impl<B: Backend> Update<'_, B> {
    /// Makes the waiting updates. Returns the new values of their parameters.
    fn finish(self) -> HashMap<ParamId, FloatTensor<B>> {
        let factor = self.factor.of_guarded_rule();
        let mut places = Vec::new();
        let mut inputs = Vec::new();
        for (id, path, of) in self.waiting {
            places.push((id, path));
            inputs.push(of);
        }
        let updated = ops::adamw_all::<B>(inputs, factor);
        let mut values = HashMap::new();
        for ((id, path), (value, first, second)) in places.into_iter().zip(updated) {
            let moments = Moments::Two { first, second };
            self.optimizer.moments.insert(path, moments);
            values.insert(id, value);
        }
        values
    }
}

/// Puts the updated values in the places of their parameters.
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

impl<B, A> ParamMapper<A> for Update<'_, B>
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
        let optimizer = &mut *self.optimizer;
        let value = value.inner();
        let own = value.device();
        let grad = match device == own {
            true => grad,
            false => grad.to_device(&own),
        };
        let path = match optimizer.parameters.get(id) {
            Some(parameter) => parameter.path.clone(),
            None => path.to_owned(),
        };
        let role = optimizer.role(&path, D);
        let (rule, rate) = optimizer.rule(&path, &role, self.rate);
        if let Rule::AdamW(rule) = rule {
            let moments = Moments::two_or_zeros(optimizer.moments.remove(&path), &grad);
            let inputs = AdamWInputs {
                parameter: primitive(value),
                grad: primitive(grad),
                moments,
                step: rule.numbers(rate, optimizer.updates),
            };
            self.waiting.push((id, path, inputs));
            // Another handle of the value would prevent the update in place.
            return Tensor::from_inner(Tensor::empty([1; D], &own));
        }
        let step = UpdateStep {
            factor: self.factor.clone(),
            rate: self.rate,
        };
        let updated = optimizer.updated(&path, &role, value, grad, step);
        Tensor::from_inner(updated).require_grad()
    }
}
