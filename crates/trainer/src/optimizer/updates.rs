//! The updates of a step. Those that a device makes in a few launches for all parameters wait until the step's end.

use burn::tensor::Tensor;
use burn::tensor::ops::FloatTensor;
use emberlm_kernels::{AdamWInputs, Backend, ops};
use emberlm_model::ParameterRole;

use super::decay::Decay;
use super::guard::StepFactor;
use super::rule::{UpdateInputs, Updated};
use super::state::StateKind;
use super::{Moments, Optimizer, primitive};

/// The updates of a step, of parameters or pieces of them that the caller knows by keys.
pub(super) struct Updates<'a, B: Backend, K> {
    pub(super) optimizer: &'a mut Optimizer<B>,
    factor: StepFactor<'a, B>,
    rate: f64,
    made: Vec<(K, FloatTensor<B>)>,
    /// Keys, paths and inputs of the others.
    waiting: Vec<(K, String, AdamWInputs<B>)>,
}

impl<'a, B: Backend, K> Updates<'a, B, K> {
    /// The updates of a step at this learning rate, before the groups' factors.
    pub(super) fn new(
        optimizer: &'a mut Optimizer<B>,
        factor: StepFactor<'a, B>,
        rate: f64,
    ) -> Self {
        Self {
            optimizer,
            factor,
            rate,
            made: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// Adds the update of the parameter at `path`, or of a piece of it, by its gradient.
    pub(super) fn add<const D: usize>(
        &mut self,
        key: K,
        path: &str,
        role: &ParameterRole,
        value: Tensor<B, D>,
        grad: Tensor<B, D>,
    ) {
        let optimizer = &mut *self.optimizer;
        let moments = optimizer.moments.remove(path).unwrap_or_default();
        let rule = optimizer.settings.rule(role);
        let size = optimizer.size_factors(path, role, rule.width_power());
        let rule = rule.with_epsilon_factor(size.epsilon);
        let group = optimizer.settings.group(role).rate;
        let rate = self.rate * optimizer.layer_factor(path) * group * size.rate;
        let decay = optimizer.settings.decay(role);
        // A second handle would prevent the update in place, so it exists only under a guard that the rule does not read.
        let before = match &self.factor.guarded {
            Some((guard, _)) if !rule.reads_guard() => {
                Some((*guard, value.clone(), moments.clone()))
            }
            _ => None,
        };
        let inputs = UpdateInputs {
            parameter: value,
            grad,
            factor: self.factor.clip.clone(),
            moments,
            rate,
            decay: Decay {
                amount: decay.amount * optimizer.decay_factor * size.decay,
                ..decay
            },
            number: optimizer.updates,
            widths: role.widths(),
        };
        let (updated, moments) = match rule.update(inputs) {
            Updated::Together(inputs) => {
                self.waiting.push((key, path.to_owned(), inputs));
                return;
            }
            Updated::Made(updated, moments) => (updated, moments),
        };
        let (updated, moments) = match before {
            Some((guard, value, before)) => (
                guard.choose(value, updated),
                Moments::chosen::<D>(guard, before, moments),
            ),
            None => (updated, moments),
        };
        optimizer.moments.insert(path.to_owned(), moments);
        self.made.push((key, primitive(updated)));
    }

    /// Makes the waiting updates. Returns all new values.
    pub(super) fn finish(mut self) -> Vec<(K, FloatTensor<B>)> {
        let (mut places, mut inputs) = (Vec::new(), Vec::new());
        for (key, path, of) in self.waiting {
            places.push((key, path));
            inputs.push(of);
        }
        let updated = ops::adamw_all::<B>(inputs, self.factor.of_guarded_rule());
        for ((key, path), (value, first, second)) in places.into_iter().zip(updated) {
            let moments = [(StateKind::First, first), (StateKind::Second, second)];
            let moments = moments.into_iter().collect();
            self.optimizer.moments.insert(path, moments);
            self.made.push((key, value));
        }
        self.made
    }
}
