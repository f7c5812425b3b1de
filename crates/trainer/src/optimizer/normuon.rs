//! NorMuon (Li et al. 2025, arXiv 2510.05491): Muon with a second moment for each neuron, an output of a linear layer, so that
//! no neuron dominates the update.
//!
//! ```text
//! m <- μ · m + (1 - μ) · g
//! O  = orthogonal((1 - μ) · g + μ · m)
//! v <- β · v + (1 - β) · mean(O²)                        (over the inputs of each neuron)
//! N  = O / (√v + ε)
//! p <- p · (1 - rate · decay) - rate · 0.2 · √max(rows, columns) · N · ‖O‖ / (‖N‖ + ε)
//! ```
//!
//! As in the authors' implementation, the momentum is Nesterov's and the normalized update has the norm of `O`; the paper sets
//! its root mean square to 0.2, which is the same for an exactly orthogonal `O`. Muon's factor follows. Weights are `[inputs,
//! outputs]`, so a neuron is a column. Layers that are stored side by side are updated separately.

use burn::tensor::Tensor;
use emberlm_kernels::Backend;
use emberlm_model::ParameterRole;

use super::orthogonal::orthogonal;
use super::rule::{RuleSettings, UpdateInputs, UpdateRule, Updated};
use super::state::StateKind;
use super::{Rule, muon};
use crate::config::{AdamWConfig, Group, NorMuonConfig, Orthogonalization};

/// ε.
const EPSILON: f64 = 1e-10;

/// NorMuon's hyperparameters for a group.
pub(super) struct Step {
    /// μ.
    momentum: f64,
    /// β.
    neuron_beta: f64,
    orthogonalization: Orthogonalization,
}

/// NorMuon updates only the linear layers' weights, AdamW all other parameters.
impl RuleSettings for NorMuonConfig {
    fn rule(&self, role: &ParameterRole, own: &Group) -> Rule {
        match role {
            ParameterRole::Matrix | ParameterRole::FusedMatrix { .. } => Rule::NorMuon(Step {
                momentum: self.momentum,
                neuron_beta: self.neuron_beta,
                orthogonalization: self.orthogonalization,
            }),
            _ => AdamWConfig::from(self).rule(role, own),
        }
    }
}

impl UpdateRule for Step {
    const IS_ELEMENTWISE: bool = false;
    const STATE: &'static [StateKind] = &[StateKind::Momentum, StateKind::Neurons];
    const TEMPORARIES: f64 = 2.0;
    const WIDTH_POWER: f64 = 0.5;

    fn update<B: Backend, const D: usize>(self, inputs: UpdateInputs<'_, B, D>) -> Updated<B, D> {
        let mut inputs = inputs;
        let before: Option<Tensor<B, D>> = inputs.moments.take(StateKind::Neurons);
        let columns = inputs.parameter.shape()[D - 1];
        let before = before.map(|before| before.reshape([1, columns]));
        let mut neurons = Vec::new();
        let (updated, moments) = muon::updated(inputs, self.momentum, |layer, start| {
            let [_, width] = layer.dims();
            let update = orthogonal(layer, self.orthogonalization);
            let before = before.clone().map(|of| of.narrow(1, start, width));
            let (update, after) = self.normalized(update, before);
            neurons.push(after);
            update
        });
        let mut shape = [1; D];
        shape[D - 1] = columns;
        let neurons: Tensor<B, D> = Tensor::cat(neurons, 1).reshape(shape);
        Updated::Made(updated, moments.with(StateKind::Neurons, neurons))
    }
}

impl Step {
    /// The update with its neurons normalized, and their second moments `[1, columns]` after it. They are `None` before the
    /// first update.
    fn normalized<B: Backend>(
        &self,
        update: Tensor<B, 2>,
        neurons: Option<Tensor<B, 2>>,
    ) -> (Tensor<B, 2>, Tensor<B, 2>) {
        let norm = |of: &Tensor<B, 2>| (of.clone() * of.clone()).sum().sqrt().unsqueeze::<2>(); // [1, 1]
        let squares = (update.clone() * update.clone()).mean_dim(0) * (1.0 - self.neuron_beta);
        let neurons = match neurons {
            Some(before) => before * self.neuron_beta + squares,
            None => squares,
        };
        let before = norm(&update);
        let update = update / (neurons.clone().sqrt() + EPSILON);
        let factor = before / (norm(&update) + EPSILON);
        (update * factor, neurons)
    }
}
