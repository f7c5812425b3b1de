//! Lion (Chen et al. 2023, algorithm 2).

use emberlm_kernels::Backend;
use emberlm_model::ParameterRole;

use super::Rule;
use super::rule::{RuleSettings, UpdateInputs, UpdateRule, Updated, clipped};
use super::state::StateKind;
use crate::config::{Group, LionConfig};

/// Lion's hyperparameters for a group.
pub(super) struct Step {
    /// β₁: weight of the moment in the update.
    beta1: f64,
    /// β₂: decay of the moment.
    beta2: f64,
}

impl RuleSettings for LionConfig {
    fn rule(&self, _: &ParameterRole, own: &Group) -> Rule {
        Rule::Lion(Step {
            beta1: own.beta1.unwrap_or(self.beta1),
            beta2: own.beta2.unwrap_or(self.beta2),
        })
    }
}

impl UpdateRule for Step {
    const IS_ELEMENTWISE: bool = true;
    const STATE: &'static [StateKind] = &[StateKind::Momentum];
    const TEMPORARIES: f64 = 2.0;
    const WIDTH_POWER: f64 = 1.0;

    /// ```text
    /// p <- p · (1 - rate · decay) - rate · sign(β₁ · m + (1 - β₁) · g)
    /// m <- β₂ · m + (1 - β₂) · g
    /// ```
    fn update<B: Backend, const D: usize>(self, inputs: UpdateInputs<'_, B, D>) -> Updated<B, D> {
        let grad = clipped(inputs.grad, inputs.factor);
        let mut moments = inputs.moments;
        let mean = moments.take_like(StateKind::Momentum, &grad);
        let blend = mean.clone() * self.beta1 + grad.clone() * (1.0 - self.beta1);
        let (decay, update) = (inputs.decay, blend.sign());
        let updated = decay.with_update(inputs.parameter, update, inputs.rate);
        let mean = mean * self.beta2 + grad * (1.0 - self.beta2);
        Updated::Made(updated, moments.with(StateKind::Momentum, mean))
    }
}
