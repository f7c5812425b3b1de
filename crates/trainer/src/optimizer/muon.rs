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
use emberlm_kernels::ops::matmul;
use emberlm_model::ParameterRole;

use super::rule::{RuleSettings, UpdateInputs, UpdateRule, Updated, clipped};
use super::state::StateKind;
use super::{Moments, Rule};
use crate::config::{AdamWConfig, Group, MuonConfig};

/// Coefficients of Jordan's quintic, which is steep at 0 and then stays near 1.
const COEFFICIENTS: (f64, f64, f64) = (3.4445, -4.7750, 2.0315);
const ITERATIONS: usize = 5;
/// Lower bound of the norm that divides the matrix.
const EPSILON: f64 = 1e-7;

/// Muon's hyperparameters for a group.
pub(super) struct Step {
    /// μ.
    momentum: f64,
    /// Decoupled weight decay.
    decay: f64,
}

/// Muon updates only the linear layers' weights, AdamW all other parameters.
impl RuleSettings for MuonConfig {
    fn rule(&self, role: &ParameterRole, own: &Group) -> Rule {
        match role {
            ParameterRole::Matrix | ParameterRole::FusedMatrix { .. } => Rule::Muon(Step {
                momentum: self.momentum,
                decay: self.weight_decay * own.weight_decay,
            }),
            _ => AdamWConfig {
                beta1: self.beta1,
                beta2: self.beta2,
                epsilon: self.epsilon,
                weight_decay: self.weight_decay,
            }
            .rule(role, own),
        }
    }
}

impl UpdateRule for Step {
    /// A matrix is orthogonalized as a whole.
    const IS_ELEMENTWISE: bool = false;
    const STATE: &'static [StateKind] = &[StateKind::Momentum];
    const TEMPORARIES: f64 = 2.0;

    fn update<B: Backend, const D: usize>(self, inputs: UpdateInputs<'_, B, D>) -> Updated<B, D> {
        let grad = clipped(inputs.grad, inputs.factor);
        let mean = Moments::mean_or_zeros(inputs.moments, &grad);
        let rate = inputs.rate;
        let mean = mean * self.momentum + grad.clone() * (1.0 - self.momentum);
        let ahead = grad * (1.0 - self.momentum) + mean.clone() * self.momentum;
        let change = change(ahead, inputs.widths);
        let updated = inputs.parameter * (1.0 - rate * self.decay) - change * rate;
        Updated::Made(updated, Moments::one(mean))
    }
}

/// The orthogonalized momentum of each of the layers of `widths`.
fn change<B: Backend, const D: usize>(
    ahead: Tensor<B, D>,
    widths: Option<&[usize]>,
) -> Tensor<B, D> {
    let shape = ahead.shape();
    let columns = shape[D - 1];
    let ahead = ahead.reshape([-1, columns as i64]); // [rows, columns]
    let change = match widths {
        None => scaled(ahead),
        Some(widths) => {
            let mut start = 0;
            let layers = widths.iter().map(|&width| {
                let layer = ahead.clone().narrow(1, start, width);
                start += width;
                scaled(layer)
            });
            Tensor::cat(layers.collect(), 1)
        }
    };
    change.reshape(shape)
}

/// The orthogonalized matrix times `0.2 · √max(rows, columns)`.
fn scaled<B: Backend>(matrix: Tensor<B, 2>) -> Tensor<B, 2> {
    let [rows, columns] = matrix.dims();
    orthogonal(matrix) * (0.2 * (rows.max(columns) as f64).sqrt())
}

/// `U S Vᵀ` of a matrix `U Σ Vᵀ`, with `S` about 0.7 to 1.2 wherever Σ is not negligible relative to the norm: five
/// Newton-Schulz iterations `X <- a X + (b A + c A²) X`, `A = X Xᵀ`, from the matrix over its norm.
fn orthogonal<B: Backend>(matrix: Tensor<B, 2>) -> Tensor<B, 2> {
    let (a, b, c) = COEFFICIENTS;
    let [rows, columns] = matrix.dims();
    let norm = (matrix.clone() * matrix.clone()).sum().sqrt(); // [1]
    let mut x = matrix / norm.clamp_min(EPSILON).unsqueeze();
    // The smaller of `X Xᵀ` and `Xᵀ X`.
    let tall = rows > columns;
    if tall {
        x = x.transpose();
    }
    for _ in 0..ITERATIONS {
        let gram = matmul(x.clone(), x.clone().transpose());
        let polynomial = gram.clone() * b + matmul(gram.clone(), gram) * c;
        x = x.clone() * a + matmul(polynomial, x);
    }
    if tall { x.transpose() } else { x }
}
