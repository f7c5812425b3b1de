//! Muon (Jordan et al. 2024): updates a matrix by its momentum, orthogonalized so that all singular values
//! are near 1.
//!
//! ```text
//! m <- μ · m + (1 - μ) · g
//! p <- p · (1 - rate · decay) - rate · 0.2 · √max(rows, columns) · orthogonal((1 - μ) · g + μ · m)
//! ```
//!
//! The momentum is Nesterov's, and the factor `0.2 · √max(rows, columns)` is Moonshot's (Liu et al. 2025,
//! "Muon is scalable for LLM training"). The root mean square of an orthogonal update is `1/√max(rows,
//! columns)`, that of AdamW's updates 0.2 to 0.4 in their runs. With the factor, one learning rate and one
//! weight decay suit both optimizers. PyTorch's `torch.optim.Muon` with `adjust_lr_fn="match_rms_adamw"` is
//! the same, except that it rounds to bfloat16: here everything is f32.
//!
//! Queries, keys and values are three linear layers whose weights are stored as one matrix. Each is orthogonalized
//! separately, as Jordan advises. Otherwise the largest of the three would dominate the update.

use burn::tensor::Tensor;
use emberlm_kernels::Backend;
use emberlm_model::ParameterRole;

use super::orthogonal::{of_each_layer, orthogonal, update_scale};
use super::rule::{RuleSettings, UpdateInputs, UpdateRule, Updated, clipped};
use super::state::StateKind;
use super::{Moments, Rule};
use crate::config::{AdamWConfig, Group, MuonConfig, Orthogonalization};

/// Muon's hyperparameters for a group.
pub(super) struct Step {
    /// μ.
    momentum: f64,
    orthogonalization: Orthogonalization,
}

/// Muon updates only the linear layers' weights, AdamW all other parameters.
impl RuleSettings for MuonConfig {
    fn rule(&self, role: &ParameterRole, own: &Group) -> Rule {
        match role {
            ParameterRole::Matrix | ParameterRole::FusedMatrix { .. } => Rule::Muon(Step {
                momentum: self.momentum,
                orthogonalization: self.orthogonalization,
            }),
            _ => AdamWConfig::from(self).rule(role, own),
        }
    }
}

impl UpdateRule for Step {
    /// A matrix is orthogonalized as a whole.
    const IS_ELEMENTWISE: bool = false;
    const STATE: &'static [StateKind] = &[StateKind::Momentum];
    const TEMPORARIES: f64 = 2.0;
    /// The spectral norm of an update is `0.2 · √max(rows, columns)`.
    const WIDTH_POWER: f64 = 0.5;

    fn update<B: Backend, const D: usize>(self, inputs: UpdateInputs<'_, B, D>) -> Updated<B, D> {
        let (updated, moments) = updated(inputs, self.momentum, |layer, _| {
            orthogonal(layer, self.orthogonalization)
        });
        Updated::Made(updated, moments)
    }
}

/// A matrix and its state after an update by `direction`, a function of each layer's blend of gradient and momentum and of the
/// layer's first column. Its results are scaled as orthogonal matrices.
pub(super) fn updated<B: Backend, const D: usize>(
    inputs: UpdateInputs<'_, B, D>,
    momentum: f64,
    mut direction: impl FnMut(Tensor<B, 2>, usize) -> Tensor<B, 2>,
) -> (Tensor<B, D>, Moments<B>) {
    let grad = clipped(inputs.grad, inputs.factor);
    let mut moments = inputs.moments;
    let mean = moments.take_like(StateKind::Momentum, &grad);
    let mean = mean * momentum + grad.clone() * (1.0 - momentum);
    let ahead = grad * (1.0 - momentum) + mean.clone() * momentum;
    let change = of_each_layer(ahead, inputs.widths, |layer, start| {
        let scale = update_scale(layer.dims());
        direction(layer, start) * scale
    });
    let (decay, rate) = (inputs.decay, inputs.rate);
    let updated = decay.with_update(inputs.parameter, change, rate);
    (updated, moments.with(StateKind::Momentum, mean))
}
