//! The language model head with its cross-entropy, in blocks of rows.

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{IndexingUpdateOp, Int, Tensor, TensorMetadata};

use super::attention_blocks::SIDE;
use super::product::{product, scaled_product};
use super::table_parts::{PartRows, part_rows};
use super::{primitive, typed};
use crate::base_ops::usable;
use crate::{BaseOps, HeadLossGradients, HeadLossInputs, HeadLossOptions, Precision};

/// The number of tokens whose logits, for a vocabulary of this size, take at most `bytes` in f32. Above 64, a multiple
/// of 64, as it is the depth of the product for the weight's gradient.
pub fn rows_per_block(vocab_size: usize, bytes: u64) -> usize {
    let rows = (bytes / 4) as usize / vocab_size.max(1);
    match rows / SIDE {
        0 => rows.max(1),
        sides => sides * SIDE,
    }
}

/// The inputs with a precision that the device supports, and the number of tokens of a block of its size.
pub(crate) fn in_blocks<B: BaseOps>(mut inputs: HeadLossInputs<B>) -> (HeadLossInputs<B>, usize) {
    inputs.precision = usable::<B>(inputs.precision, &inputs.hidden);
    let vocab_size = inputs.weights.iter().map(|part| part.shape()[0]).sum();
    let bytes = B::block_bytes(&B::float_device(&inputs.hidden));
    (inputs, rows_per_block(vocab_size, bytes))
}

/// The factor of `g` in the product for `dhidden` in f16. Most elements of `g` are probabilities of about `1/V`
/// or less, and f16 loses precision below 6e-5 and underflows below 6e-8. The magnitudes in a row of `g` sum to
/// at most 2, so the scaled sums are at most 4096 times the largest weight. They stay within f16's range of
/// 65,504 for weights below 16. (Z-loss multiplies this by `1 + 2zL`, which is close to 1.)
const F16_SCALE: f64 = 2048.0;

/// The factor of `g` in the product for `dW` in f16. Sums over `rows` tokens are at most `rows` times the largest
/// hidden state. The factor times `rows` is at most 2^13, so the sums stay in range for hidden states below 8,
/// even if the model predicts the same token with certainty everywhere.
fn f16_scale(rows: usize) -> f64 {
    8192.0 / rows.next_power_of_two() as f64
}

/// See [`crate::Backend::head_loss`]. The logits of `rows` tokens are materialized at once.
pub fn head_loss<B: BaseOps>(inputs: HeadLossInputs<B>, rows: usize) -> FloatTensor<B> {
    let device = B::float_device(&inputs.hidden);
    let losses = block_losses(inputs, rows);
    let zero = Tensor::zeros([1], &device);
    primitive(losses.fold(zero, |loss, losses| loss + losses.sum()))
}

/// See [`crate::Backend::head_losses`]. The logits of `rows` tokens are materialized at once.
pub fn head_losses<B: BaseOps>(inputs: HeadLossInputs<B>, rows: usize) -> FloatTensor<B> {
    let losses = block_losses(inputs, rows).map(|losses| losses.squeeze_dim::<1>(1));
    primitive(Tensor::cat(losses.collect(), 0))
}

/// The losses of each block of `rows` tokens, `[rows, 1]`.
fn block_losses<B: BaseOps>(
    inputs: HeadLossInputs<B>,
    rows: usize,
) -> impl Iterator<Item = Tensor<B, 2>> {
    let HeadLossInputs {
        hidden,
        weights,
        targets,
        options,
        precision,
    } = inputs;
    let weights: Vec<_> = weights.into_iter().map(typed::<B, 2>).collect(); // [part's rows, d_model] each
    let blocks = blocks::<B>(typed::<B, 2>(hidden), targets, rows);
    blocks.map(move |block| block.losses(&weights, options, precision))
}

/// See [`crate::Backend::head_losses_backward`]: [`head_loss_gradients`] with each token's contribution times its element
/// of `grads` `[tokens]`.
pub fn head_losses_backward<B: BaseOps>(
    inputs: HeadLossInputs<B>,
    grads: FloatTensor<B>,
    trains_weights: bool,
    rows: usize,
) -> HeadLossGradients<B> {
    let grads = typed::<B, 1>(grads).unsqueeze_dim(1); // [tokens, 1]
    gradients(inputs, Some(grads), trains_weights, rows)
}

/// See [`crate::Backend::head_loss_gradients`]. The logits of `rows` tokens are materialized at once.
///
/// With `p = softmax(logits)`, the targets' one-hot rows `y`, the vocabulary size `V` and `L` as in
/// [`HeadLossOptions`], the gradient of the logits is `g = (1 + 2zL) · p - (1 - ε) · y - ε/V`, and
/// `dhidden = g W`, `dW = gᵀ hidden`. The contributions of `y` are gathered and scattered rows, and those of
/// `ε/V` are a single row each, so `p` is the only `[rows, vocab_size]` tensor. Where a target is ignored, `g` is
/// 0: its rows of `hidden` and `dhidden`, both `[rows, d_model]`, are masked.
///
/// With a soft cap `c`, `g` is the gradient of the capped logits `x`, and the gradient of the logits is
/// `(1 - (x/c)²) · g`. The contribution of `ε/V` is then no longer a constant row and is included in the
/// `[rows, vocab_size]` tensor.
///
/// In 16-bit precisions, `y` is scattered into `g` before rounding. Otherwise, where the model predicts a target
/// with certainty, the difference of a rounded `p W` and an unrounded row of `W` would consist of rounding errors
/// only. In f16, `g` is additionally scaled by `F16_SCALE` and `f16_scale` to avoid underflow, and the products
/// are divided by the factor.
///
/// A weight in several parts has its logits in parts: reductions over the vocabulary combine the reductions of
/// the parts, and each target is in exactly one part. A single part uses the same operations as an unsplit
/// weight.
pub fn head_loss_gradients<B: BaseOps>(
    inputs: HeadLossInputs<B>,
    rows: usize,
) -> HeadLossGradients<B> {
    gradients(inputs, None, true, rows)
}

/// The gradients of the sum of the losses, each times its element of `row_grads` `[tokens, 1]`. Those of the weights are
/// computed only if `trains_weights`.
fn gradients<B: BaseOps>(
    inputs: HeadLossInputs<B>,
    row_grads: Option<Tensor<B, 2>>,
    trains_weights: bool,
    rows: usize,
) -> HeadLossGradients<B> {
    let HeadLossInputs {
        hidden,
        weights,
        targets,
        options,
        precision,
    } = inputs;
    let weights: Vec<_> = weights.into_iter().map(typed::<B, 2>).collect(); // [part's rows, d_model] each
    let vocab_size: usize = weights.iter().map(|weight| weight.dims()[0]).sum();
    let hidden = typed::<B, 2>(hidden);
    let device = hidden.device();
    let smoothing = smoothing_row(&weights, options);
    let mut loss = Tensor::zeros([1], &device);
    let mut weight_grads: Vec<Option<Tensor<B, 2>>> = vec![None; weights.len()];
    let mut hidden_grads = Vec::new();
    // Σ hidden over the target tokens, [1, d_model]; only for label smoothing.
    let mut hidden_sum: Option<Tensor<B, 2>> = None;
    for (number, block) in blocks::<B>(hidden, targets, rows).enumerate() {
        // The gradient of each row's loss, [rows, 1].
        let row_grad = match &row_grads {
            Some(grads) => {
                let of_block = grads
                    .clone()
                    .narrow(0, number * rows, block.hidden.dims()[0]);
                of_block * block.target_mask.clone()
            }
            None => block.target_mask.clone(),
        };
        let part_rows = block.target_rows(&weights);
        let logits = block.logits(&weights, options, precision); // [rows, vocab_size]
        let target_logits = block.target_logits(&logits, &part_rows);
        let smoothing_logits = smoothing_logits(&logits, options);
        // The contribution of the targets to -g, [rows, 1].
        let mut target_grad = block.target_mask.clone() * (1.0 - options.label_smoothing);
        let mut slopes = None;
        if options.soft_cap > 0.0 {
            target_grad = target_grad * slope(target_logits.clone(), options.soft_cap);
            let of = |logits: &Tensor<B, 2>| slope(logits.clone(), options.soft_cap);
            slopes = Some(logits.iter().map(of).collect::<Vec<_>>());
        }
        let Exponentials { exp, sum, log_sum } = exponentials(logits, &block.target_mask);
        // (1 + 2zL) · p; with a cap, all of g but the contribution of the targets
        let mut grads: Vec<_> = match options.z_loss {
            0.0 => exp.into_iter().map(|exp| exp / sum.clone()).collect(),
            z => {
                let factor = (log_sum.clone() * (2.0 * z) + 1.0) / sum;
                exp.into_iter().map(|exp| exp * factor.clone()).collect()
            }
        };
        if let Some(slopes) = slopes {
            let sloped = grads.into_iter().zip(slopes).map(|(grad, slopes)| {
                (grad - options.label_smoothing / vocab_size as f64) * slopes
            });
            grads = sloped.collect();
        }
        loss = loss + row_losses(&block, target_logits, log_sum, smoothing_logits, options).sum();
        let masked_hidden = block.hidden.clone() * row_grad.clone(); // [rows, d_model]
        // The contribution of the targets, unless it is part of the products.
        let separate_target_grad = match precision {
            Precision::F32 => Some(target_grad),
            Precision::Bf16 | Precision::F16 => {
                let scattered = grads.into_iter().zip(&part_rows).map(|(grad, part_rows)| {
                    let targets = part_rows.rows.clone().unsqueeze_dim(1);
                    grad.scatter(
                        1,
                        targets,
                        -part_rows.or_zero(target_grad.clone()),
                        IndexingUpdateOp::Add,
                    )
                });
                grads = scattered.collect();
                None
            }
        };
        let products = grads.iter().zip(&weights).map(|(grad, weight)| {
            scaled_product(grad.clone(), weight.clone(), precision, F16_SCALE)
        });
        let mut hidden_grad = joined(products, Tensor::add, &block.hidden);
        if let Some(target_grad) = &separate_target_grad {
            let mut target_rows = None; // [rows, d_model]
            for (part_rows, weight) in part_rows.iter().zip(&weights) {
                let rows = weight.clone().select(0, part_rows.rows.clone());
                target_rows = Some(part_rows.select_or(target_rows, rows));
            }
            if let Some(target_rows) = target_rows {
                hidden_grad = hidden_grad - target_rows * target_grad.clone();
            }
        }
        if let Some(smoothing) = &smoothing {
            hidden_grad = hidden_grad - smoothing.clone();
            let sum = masked_hidden.clone().sum_dim(0); // [1, d_model]
            hidden_sum = Some(match hidden_sum {
                Some(all) => all + sum,
                None => sum,
            });
        }
        hidden_grads.push(hidden_grad * row_grad);
        if !trains_weights {
            continue;
        }
        let target_hidden =
            separate_target_grad.map(|target_grad| masked_hidden.clone() * target_grad);
        let factor = f16_scale(masked_hidden.dims()[0]);
        for ((grad, part_rows), weight_grad) in
            grads.into_iter().zip(part_rows).zip(&mut weight_grads)
        {
            // [part's rows, d_model]
            let part = scaled_product(grad.transpose(), masked_hidden.clone(), precision, factor);
            let mut sum = match weight_grad.take() {
                Some(sum) => sum + part,
                None => part,
            };
            if let Some(rows) = &target_hidden {
                let (targets, rows) = (part_rows.rows.clone(), part_rows.or_zero(rows.clone()));
                sum = sum.select_assign(0, targets, -rows, IndexingUpdateOp::Add);
            }
            *weight_grad = Some(sum);
        }
    }
    let smoothing = hidden_sum.map(|sum| sum * (options.label_smoothing / vocab_size as f64));
    let weight_grads = weight_grads.into_iter().zip(weights);
    let weight_grads = weight_grads
        .filter(|_| trains_weights)
        .map(|(grad, weight)| {
            let grad = grad.unwrap_or_else(|| weight.zeros_like());
            primitive(match &smoothing {
                Some(smoothing) => grad - smoothing.clone(),
                None => grad,
            })
        });
    HeadLossGradients {
        loss: primitive(loss),
        weights: weight_grads.collect(),
        hidden: primitive(Tensor::cat(hidden_grads, 0)),
    }
}

/// Reduces the parts with `both`, or returns zeros in the shape of `none` if there is no part.
fn joined<B: BaseOps>(
    parts: impl Iterator<Item = Tensor<B, 2>>,
    both: impl Fn(Tensor<B, 2>, Tensor<B, 2>) -> Tensor<B, 2>,
    none: &Tensor<B, 2>,
) -> Tensor<B, 2> {
    parts.reduce(both).unwrap_or_else(|| none.zeros_like())
}

/// The mean over the dimension in which the parts are split.
fn mean<B: BaseOps>(parts: &[Tensor<B, 2>], dim: usize) -> Option<Tensor<B, 2>> {
    if let [whole] = parts {
        return Some(whole.clone().mean_dim(dim));
    }
    let count: usize = parts.iter().map(|part| part.dims()[dim]).sum();
    let sums = parts.iter().map(|part| part.clone().sum_dim(dim));
    sums.reduce(Tensor::add).map(|sum| sum / count as f64)
}

/// `ε · Σ_v W_v / V`, `[1, d_model]`: the contribution of `ε/V` to each row of `dhidden`. `None` without label
/// smoothing, and with a soft cap.
fn smoothing_row<B: BaseOps>(
    weights: &[Tensor<B, 2>],
    options: HeadLossOptions,
) -> Option<Tensor<B, 2>> {
    let smoothing = options.label_smoothing;
    if smoothing == 0.0 || options.soft_cap != 0.0 {
        return None;
    }
    mean(weights, 0).map(|mean| mean * smoothing)
}

/// `ε · Σ_v x_v / V`, `[rows, 1]`. `None` without label smoothing.
fn smoothing_logits<B: BaseOps>(
    logits: &[Tensor<B, 2>],
    options: HeadLossOptions,
) -> Option<Tensor<B, 2>> {
    let smoothing = options.label_smoothing;
    if smoothing == 0.0 {
        return None;
    }
    mean(logits, 1).map(|mean| mean * smoothing)
}

/// The derivative of the soft cap at a capped logit `x`: `1 - (x/c)²`.
fn slope<B: BaseOps>(x: Tensor<B, 2>, cap: f64) -> Tensor<B, 2> {
    let ratio = x / cap;
    -(ratio.clone() * ratio) + 1.0
}

/// The losses of a block's rows, `[rows, 1]`, from the targets' logits, `L` and the result of [`smoothing_logits`],
/// `[rows, 1]` each.
fn row_losses<B: BaseOps>(
    block: &Block<B>,
    target_logits: Tensor<B, 2>,
    log_sum: Tensor<B, 2>,
    smoothing_logits: Option<Tensor<B, 2>>,
    options: HeadLossOptions,
) -> Tensor<B, 2> {
    let mut loss = log_sum.clone() - target_logits * (1.0 - options.label_smoothing);
    if let Some(smoothing_logits) = smoothing_logits {
        loss = loss - smoothing_logits;
    }
    if options.z_loss != 0.0 {
        loss = loss + log_sum.clone() * log_sum * options.z_loss;
    }
    loss * block.target_mask.clone()
}

/// A block of hidden states with their targets.
struct Block<B: BaseOps> {
    /// `[rows, d_model]`.
    hidden: Tensor<B, 2>,
    /// `[rows]`; an arbitrary token where the target is ignored.
    targets: Tensor<B, 1, Int>,
    /// 0 where the target is ignored and 1 elsewhere, `[rows, 1]`.
    target_mask: Tensor<B, 2>,
}

impl<B: BaseOps> Block<B> {
    /// The losses of the rows, `[rows, 1]`.
    fn losses(
        &self,
        weights: &[Tensor<B, 2>],
        options: HeadLossOptions,
        precision: Precision,
    ) -> Tensor<B, 2> {
        let logits = self.logits(weights, options, precision); // [rows, vocab_size]
        let target_logits = self.target_logits(&logits, &self.target_rows(weights));
        let smoothing_logits = smoothing_logits(&logits, options);
        let log_sum = exponentials(logits, &self.target_mask).log_sum;
        row_losses(self, target_logits, log_sum, smoothing_logits, options)
    }

    /// The logits of each part of the weight, together `[rows, vocab_size]`, with the soft cap applied.
    fn logits(
        &self,
        weights: &[Tensor<B, 2>],
        options: HeadLossOptions,
        precision: Precision,
    ) -> Vec<Tensor<B, 2>> {
        let of = |weight: &Tensor<B, 2>| {
            let logits = product(self.hidden.clone(), weight.clone().transpose(), precision);
            match options.soft_cap {
                0.0 => logits,
                cap => (logits / cap).tanh() * cap,
            }
        };
        weights.iter().map(of).collect()
    }

    /// The targets' rows in each part of the weight, `[rows]`.
    fn target_rows(&self, weights: &[Tensor<B, 2>]) -> Vec<PartRows<B, 1>> {
        let rows: Vec<usize> = weights.iter().map(|weight| weight.dims()[0]).collect();
        part_rows(&self.targets, &rows)
    }

    /// The logits of the targets, `[rows, 1]`, from all logits, `[rows, vocab_size]`.
    fn target_logits(&self, logits: &[Tensor<B, 2>], part_rows: &[PartRows<B, 1>]) -> Tensor<B, 2> {
        let mut selected = None;
        for (logits, part_rows) in logits.iter().zip(part_rows) {
            let here = logits
                .clone()
                .gather(1, part_rows.rows.clone().unsqueeze_dim(1));
            selected = Some(part_rows.select_or(selected, here));
        }
        selected.unwrap_or_else(|| self.target_mask.zeros_like())
    }
}

fn blocks<B: BaseOps>(
    hidden: Tensor<B, 2>,
    targets: IntTensor<B>,
    rows: usize,
) -> impl Iterator<Item = Block<B>> {
    let targets = Tensor::<B, 1, Int>::from_primitive(targets);
    let target_mask = targets.clone().greater_equal_elem(0).float();
    let target_mask = target_mask.unsqueeze_dim(1); // [tokens, 1]
    let targets = targets.clamp_min(0);
    let tokens = hidden.dims()[0];
    (0..tokens).step_by(rows).map(move |start| {
        let rows = rows.min(tokens - start);
        Block {
            hidden: hidden.clone().narrow(0, start, rows),
            targets: targets.clone().narrow(0, start, rows),
            target_mask: target_mask.clone().narrow(0, start, rows),
        }
    })
}

/// The intermediate results of a softmax.
struct Exponentials<B: BaseOps> {
    /// `exp(logits - max)`, part by part, together `[rows, vocab_size]`.
    exp: Vec<Tensor<B, 2>>,
    /// Its sum over the vocabulary, `[rows, 1]`.
    sum: Tensor<B, 2>,
    /// `ln Σ exp(logits)`, `[rows, 1]`.
    log_sum: Tensor<B, 2>,
}

/// The exponentials of logits in parts. `column` is any tensor `[rows, 1]`.
fn exponentials<B: BaseOps>(logits: Vec<Tensor<B, 2>>, column: &Tensor<B, 2>) -> Exponentials<B> {
    let largest = logits.iter().map(|logits| logits.clone().max_dim(1));
    let max = joined(largest, Tensor::max_pair, column); // [rows, 1]
    let exp = logits
        .into_iter()
        .map(|logits| (logits - max.clone()).exp());
    let exp: Vec<_> = exp.collect();
    let sums = exp.iter().map(|exp| exp.clone().sum_dim(1));
    let sum = joined(sums, Tensor::add, column); // [rows, 1]
    let log_sum = sum.clone().log() + max;
    Exponentials { exp, sum, log_sum }
}
