//! AdamW (Loshchilov and Hutter 2019); [`emberlm_kernels::Backend::adamw`] has its equations.

use emberlm_kernels::{AdamWInputs, AdamWStep, Backend};
use emberlm_model::ParameterRole;

use super::rule::{RuleSettings, UpdateInputs, UpdateRule, Updated};
use super::state::StateKind;
use super::{Rule, primitive};
use crate::config::{AdamWConfig, Group};

/// AdamW's hyperparameters for a group.
pub(super) struct Step {
    beta1: f64,
    beta2: f64,
    epsilon: f64,
}

impl RuleSettings for AdamWConfig {
    fn rule(&self, _: &ParameterRole, own: &Group) -> Rule {
        Rule::AdamW(Step {
            beta1: own.beta1.unwrap_or(self.beta1),
            beta2: own.beta2.unwrap_or(self.beta2),
            epsilon: self.epsilon,
        })
    }
}

impl UpdateRule for Step {
    const IS_ELEMENTWISE: bool = true;
    const READS_GUARD: bool = true;
    const STATE: &'static [StateKind] = &[StateKind::First, StateKind::Second];
    /// The update is in place.
    const TEMPORARIES: f64 = 0.0;
    const WIDTH_POWER: f64 = 1.0;

    fn with_epsilon_factor(self, factor: f64) -> Self {
        Self {
            epsilon: self.epsilon * factor,
            ..self
        }
    }

    fn update<B: Backend, const D: usize>(self, inputs: UpdateInputs<'_, B, D>) -> Updated<B, D> {
        let step = AdamWStep {
            rate: inputs.rate,
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            decay: inputs.decay.amount,
            cautious: inputs.decay.cautious,
            step: inputs.number,
        };
        let mut moments = inputs.moments;
        let moments = [StateKind::First, StateKind::Second]
            .map(|kind| primitive(moments.take_like(kind, &inputs.grad)));
        Updated::Together(AdamWInputs {
            parameter: primitive(inputs.parameter),
            grad: primitive(inputs.grad),
            moments: moments.into(),
            step,
        })
    }
}
