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

use super::Moments;

/// Coefficients of Jordan's quintic, which is steep at 0 and then stays near 1.
const COEFFICIENTS: (f64, f64, f64) = (3.4445, -4.7750, 2.0315);
const ITERATIONS: usize = 5;
/// Lower bound of the norm that divides the matrix.
const EPSILON: f64 = 1e-7;

/// Muon's hyperparameters for a group.
#[derive(Clone, Copy)]
pub(super) struct MuonStep {
    /// Factor on the step's learning rate.
    pub(super) rate_factor: f64,
    /// μ.
    pub(super) momentum: f64,
    /// Decoupled weight decay.
    pub(super) decay: f64,
}

/// Returns the matrix and its moment after an update. `widths` are the widths of the layers whose weights the matrix
/// stores side by side; `None` for one layer.
pub(super) fn update<B: Backend, const D: usize>(
    parameter: Tensor<B, D>,
    grad: Tensor<B, D>,
    moments: Option<Moments<B>>,
    rate: f64,
    step: MuonStep,
    widths: Option<&[usize]>,
) -> (Tensor<B, D>, Moments<B>) {
    let mean = Moments::mean_or_zeros(moments, &grad);
    let rate = rate * step.rate_factor;
    let mean = mean * step.momentum + grad.clone() * (1.0 - step.momentum);
    let ahead = grad * (1.0 - step.momentum) + mean.clone() * step.momentum;
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
    let change: Tensor<B, D> = change.reshape(shape);
    let updated = parameter * (1.0 - rate * step.decay) - change * rate;
    (updated, Moments::one(mean))
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
