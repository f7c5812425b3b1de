//! Normalization over the last dimension with gain and bias, and its gradients.

use super::parallel::{Tasks, rows_of, rows_per_sum, rows_per_task};
use super::reduce::sum_rows;
use super::vector::{sum_by, wide};
use crate::Normalization;

/// `out = n(x) · gain + bias`, `x, out: [rows, width]`, `gain, bias: [width]`; see [`Normalization`] for `n`.
///
/// # Panics
/// Panics if the sizes do not fit.
pub fn normalize(
    kind: Normalization,
    x: &[f32],
    gain: Option<&[f32]>,
    bias: Option<&[f32]>,
    width: usize,
    out: &mut [f32],
) {
    let rows = rows_of(x.len(), width);
    assert!(
        out.len() == x.len()
            && gain.is_none_or(|gain| gain.len() == width)
            && bias.is_none_or(|bias| bias.len() == width),
        "the sizes do not fit"
    );
    let block = rows_per_task(rows, width) * width;
    out.chunks_mut(block)
        .zip(x.chunks(block))
        .for_each_task(|(out, x)| {
            wide(
                #[inline(always)]
                || {
                    for (out, x) in out.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
                        normalize_row(kind, x, gain, bias, out);
                    }
                },
            );
        });
}

#[inline(always)]
pub(super) fn normalize_row(
    kind: Normalization,
    x: &[f32],
    gain: Option<&[f32]>,
    bias: Option<&[f32]>,
    out: &mut [f32],
) {
    let mean = mean(kind, x);
    let square = sum_by(x, x, x, |x, _, _| (x - mean) * (x - mean));
    let scale = 1.0 / Divisor::of(kind, square / x.len() as f32).value;
    let pairs = out.iter_mut().zip(x);
    match (gain, bias) {
        (None, None) => {
            for (out, x) in pairs {
                *out = (*x - mean) * scale;
            }
        }
        (Some(gain), None) => {
            for ((out, x), gain) in pairs.zip(gain) {
                *out = (*x - mean) * scale * *gain;
            }
        }
        (None, Some(bias)) => {
            for ((out, x), bias) in pairs.zip(bias) {
                *out = (*x - mean) * scale + *bias;
            }
        }
        (Some(gain), Some(bias)) => {
            for (((out, x), gain), bias) in pairs.zip(gain).zip(bias) {
                *out = (*x - mean) * scale * *gain + *bias;
            }
        }
    }
}

/// The outputs of [`normalize_backward`].
#[derive(Debug)]
pub struct NormGradients<'a> {
    /// The gradient of `x`, `[rows, width]`.
    pub x: &'a mut [f32],
    /// The gradient of the gain, `[width]`; overwritten.
    pub gain: Option<&'a mut [f32]>,
    /// The gradient of the bias, `[width]`; overwritten.
    pub bias: Option<&'a mut [f32]>,
}

/// The gradient of `x` from its residual branch, which is added in the same pass.
#[derive(Clone, Copy, Debug)]
pub enum Residual<'a> {
    /// There is none. The gradient of `x` is overwritten.
    None,
    /// Adds this gradient, `[rows, width]`. The gradient of `x` is overwritten with the sum.
    From(&'a [f32]),
    /// Adds to the previous contents of the gradient of `x`.
    InPlace,
}

/// The gradients of [`normalize`]. The statistics are recomputed from `x`.
///
/// With `y = n(x)`, the divisor `d` and `g = grad · gain`: `dx = (g - y · mean(g y) · s) / d`, minus its mean for
/// a layer norm. `s` is 1 if ε is inside the square root. Otherwise it is `d / (d - ε)`, because only the root
/// depends on `x`. `dgain = Σ_r grad · y` and `dbias = Σ_r grad`: each task sums its rows in order, then the sums
/// of the tasks are added in order.
///
/// # Panics
/// Panics if the sizes do not fit.
pub fn normalize_backward(
    kind: Normalization,
    x: &[f32],
    gain: Option<&[f32]>,
    grad: &[f32],
    residual: Residual<'_>,
    width: usize,
    gradients: NormGradients<'_>,
) {
    let rows = rows_of(x.len(), width);
    let NormGradients {
        x: x_grad,
        gain: gain_grad,
        bias: bias_grad,
    } = gradients;
    let added = match residual {
        Residual::From(added) => added.len(),
        Residual::None | Residual::InPlace => x.len(),
    };
    assert!(
        grad.len() == x.len()
            && x_grad.len() == x.len()
            && added == x.len()
            && gain.is_none_or(|gain| gain.len() == width)
            && gain_grad.as_ref().is_none_or(|grad| grad.len() == width)
            && bias_grad.as_ref().is_none_or(|grad| grad.len() == width),
        "the sizes do not fit"
    );
    let block = rows_per_sum(rows, width) * width;
    let task = Task {
        kind,
        gain,
        width,
        gain_grad: gain_grad.is_some(),
        bias_grad: bias_grad.is_some(),
    };
    // `[2, width]` per task: the contributions of its rows to the gradients of the gain and of the bias.
    let mut partials = vec![0.0f32; x.len().div_ceil(block) * 2 * width];
    partials
        .chunks_mut(2 * width)
        .zip(x_grad.chunks_mut(block))
        .enumerate()
        .for_each_task(|(i, (partial, x_grad))| {
            let range = i * block..i * block + x_grad.len();
            let (x, grad) = (&x[range.clone()], &grad[range.clone()]);
            match residual {
                Residual::None => task.run::<false>(x, grad, None, x_grad, partial),
                Residual::From(added) => {
                    task.run::<false>(x, grad, Some(&added[range]), x_grad, partial);
                }
                Residual::InPlace => task.run::<true>(x, grad, None, x_grad, partial),
            }
        });
    if task.gain_grad || task.bias_grad {
        let mut sums = vec![0.0; 2 * width];
        wide(
            #[inline(always)]
            || sum_rows(&partials, 2 * width, &mut sums),
        );
        if let Some(gain_grad) = gain_grad {
            gain_grad.copy_from_slice(&sums[..width]);
        }
        if let Some(bias_grad) = bias_grad {
            bias_grad.copy_from_slice(&sums[width..]);
        }
    }
}

/// The inputs shared by all tasks of a backward pass.
#[derive(Clone, Copy)]
struct Task<'a> {
    kind: Normalization,
    gain: Option<&'a [f32]>,
    width: usize,
    gain_grad: bool,
    bias_grad: bool,
}

impl Task<'_> {
    fn run<const IN_PLACE: bool>(
        self,
        x: &[f32],
        grad: &[f32],
        added: Option<&[f32]>,
        x_grad: &mut [f32],
        partial: &mut [f32],
    ) {
        wide(
            #[inline(always)]
            || {
                let (gain_sum, bias_sum) = partial.split_at_mut(self.width);
                let rows = x
                    .chunks_exact(self.width)
                    .zip(grad.chunks_exact(self.width));
                for (r, ((x, grad), x_grad)) in
                    rows.zip(x_grad.chunks_exact_mut(self.width)).enumerate()
                {
                    let added = added.map(|added| &added[r * self.width..][..self.width]);
                    let row = match self.gain {
                        Some(gain) => Row::of::<true>(self.kind, x, grad, gain),
                        None => Row::of::<false>(self.kind, x, grad, grad),
                    };
                    match (self.gain, added) {
                        (Some(gain), Some(added)) => {
                            row.write::<true, true, IN_PLACE>(x, grad, gain, added, x_grad);
                        }
                        (Some(gain), None) => {
                            row.write::<true, false, IN_PLACE>(x, grad, gain, grad, x_grad);
                        }
                        (None, Some(added)) => {
                            row.write::<false, true, IN_PLACE>(x, grad, grad, added, x_grad);
                        }
                        (None, None) => {
                            row.write::<false, false, IN_PLACE>(x, grad, grad, grad, x_grad);
                        }
                    }
                    if self.gain_grad {
                        row.add_gain(x, grad, gain_sum);
                    }
                    if self.bias_grad {
                        add_to(bias_sum, grad);
                    }
                }
            },
        );
    }
}

/// The gradient of a row as a linear function: `dx = scale · g + along · (x - mean) + offset`.
#[derive(Clone, Copy)]
pub(super) struct Row {
    mean: f32,
    scale: f32,
    along: f32,
    offset: f32,
}

impl Row {
    #[inline(always)]
    pub(super) fn of<const GAIN: bool>(
        kind: Normalization,
        x: &[f32],
        grad: &[f32],
        gain: &[f32],
    ) -> Self {
        let n = x.len() as f32;
        let mean = mean(kind, x);
        let g = |grad: f32, gain: f32| if GAIN { grad * gain } else { grad };
        let square = sum_by(x, x, x, |x, _, _| (x - mean) * (x - mean));
        let product = sum_by(x, grad, gain, |x, grad, gain| g(grad, gain) * (x - mean));
        let divisor = Divisor::of(kind, square / n);
        let scale = 1.0 / divisor.value;
        let offset = match kind {
            Normalization::Layer { .. } => {
                -(sum_by(grad, gain, gain, |grad, gain, _| g(grad, gain)) / n) * scale
            }
            Normalization::Rms { .. } | Normalization::UnitRms { .. } => 0.0,
        };
        // mean(g y) · s; `along` below multiplies it by the factor of y and divides by the divisor.
        let along = product / n * scale * (divisor.value / divisor.root);
        Self {
            mean,
            scale,
            along: -(along * scale) * scale,
            offset,
        }
    }

    #[inline(always)]
    pub(super) fn write<const GAIN: bool, const ADDED: bool, const IN_PLACE: bool>(
        self,
        x: &[f32],
        grad: &[f32],
        gain: &[f32],
        added: &[f32],
        x_grad: &mut [f32],
    ) {
        let inputs = x.iter().zip(grad).zip(gain).zip(added);
        for (x_grad, (((x, grad), gain), added)) in x_grad.iter_mut().zip(inputs) {
            let g = if GAIN { *grad * *gain } else { *grad };
            let own = g * self.scale + (*x - self.mean) * self.along + self.offset;
            let own = if ADDED { own + *added } else { own };
            *x_grad = if IN_PLACE { own + *x_grad } else { own };
        }
    }

    /// Adds `grad · y` to `sum`.
    #[inline(always)]
    pub(super) fn add_gain(self, x: &[f32], grad: &[f32], sum: &mut [f32]) {
        for ((sum, x), grad) in sum.iter_mut().zip(x).zip(grad) {
            *sum += *grad * ((*x - self.mean) * self.scale);
        }
    }
}

#[inline(always)]
pub(super) fn add_to(sum: &mut [f32], x: &[f32]) {
    for (sum, x) in sum.iter_mut().zip(x) {
        *sum += *x;
    }
}

/// The divisor of a row, and its root, the part that depends on the row.
struct Divisor {
    root: f32,
    value: f32,
}

impl Divisor {
    #[inline(always)]
    fn of(kind: Normalization, mean_square: f32) -> Self {
        match kind {
            Normalization::Layer { epsilon } | Normalization::Rms { epsilon } => {
                let root = (mean_square + epsilon as f32).sqrt();
                Self { root, value: root }
            }
            Normalization::UnitRms { epsilon } => {
                // The root has no gradient for a row of zeros; the clamp makes it zero instead of infinite.
                let root = mean_square.sqrt().max(1e-30);
                Self {
                    root,
                    value: root + epsilon as f32,
                }
            }
        }
    }
}

/// The mean that the normalization subtracts from a row.
#[inline(always)]
fn mean(kind: Normalization, x: &[f32]) -> f32 {
    match kind {
        Normalization::Layer { .. } => sum_by(x, x, x, |x, _, _| x) / x.len() as f32,
        Normalization::Rms { .. } | Normalization::UnitRms { .. } => 0.0,
    }
}
