//! The language-model head with its cross-entropy, in blocks of rows.

use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{IndexingUpdateOp, Int, Tensor, TensorMetadata};

use super::{primitive, typed};
use crate::HeadLossGradients;

/// Logits held at once: 64 MiB of f32.
const BLOCK_ELEMENTS: usize = 1 << 24;

/// How many tokens' logits are held at once for a head's weight `[vocab_size, d_model]`.
pub fn rows_per_block<B: Backend>(weight: &FloatTensor<B>) -> usize {
    (BLOCK_ELEMENTS / weight.shape()[0].max(1)).max(1)
}

/// See [`crate::Backend::head_loss`]; the logits of `rows` tokens are held at once.
pub fn head_loss<B: Backend>(
    hidden: FloatTensor<B>,
    weight: FloatTensor<B>,
    targets: IntTensor<B>,
    rows: usize,
) -> FloatTensor<B> {
    let weight = typed::<B, 2>(weight); // [vocab_size, d_model]
    let mut loss = Tensor::zeros([1], &weight.device());
    for block in blocks::<B>(hidden, targets, rows) {
        let logits = block.hidden.matmul(weight.clone().transpose()); // [rows, vocab_size]
        let target_logits = logits.clone().gather(1, block.targets.unsqueeze_dim(1)); // [rows, 1]
        let log_sum = exponentials(logits).log_sum;
        loss = loss + (log_sum - target_logits).sum();
    }
    primitive(loss)
}

/// See [`crate::Backend::head_loss_gradients`]; the logits of `rows` tokens are held at once.
///
/// With `p = softmax(logits)` and `y` the targets' one-hot rows: `dhidden = (p - y) W` and `dW = (p - y)ᵀ hidden`;
/// `y`'s parts are gathered and scattered rows, so `p` is all that is ever made of `[rows, vocab_size]`.
pub fn head_loss_gradients<B: Backend>(
    hidden: FloatTensor<B>,
    weight: FloatTensor<B>,
    targets: IntTensor<B>,
    rows: usize,
) -> HeadLossGradients<B> {
    let weight = typed::<B, 2>(weight); // [vocab_size, d_model]
    let device = weight.device();
    let mut loss = Tensor::zeros([1], &device);
    let mut weight_grad: Option<Tensor<B, 2>> = None;
    let mut hidden_grads = Vec::new();
    for block in blocks::<B>(hidden, targets, rows) {
        let logits = block.hidden.clone().matmul(weight.clone().transpose()); // [rows, vocab_size]
        let target_logits = logits
            .clone()
            .gather(1, block.targets.clone().unsqueeze_dim(1)); // [rows, 1]
        let Exponentials { exp, sum, log_sum } = exponentials(logits);
        let probabilities = exp / sum;
        loss = loss + (log_sum - target_logits).sum();
        let target_rows = weight.clone().select(0, block.targets.clone()); // [rows, d_model]
        hidden_grads.push(probabilities.clone().matmul(weight.clone()) - target_rows);
        let product = probabilities.transpose().matmul(block.hidden.clone()); // [vocab_size, d_model]
        let sum = match weight_grad {
            Some(sum) => sum + product,
            None => product,
        };
        weight_grad =
            Some(sum.select_assign(0, block.targets, -block.hidden, IndexingUpdateOp::Add));
    }
    HeadLossGradients {
        loss: primitive(loss),
        hidden: primitive(Tensor::cat(hidden_grads, 0)),
        weight: primitive(weight_grad.unwrap_or_else(|| Tensor::zeros(weight.shape(), &device))),
    }
}

/// Some rows of the hidden states with their targets.
struct Block<B: Backend> {
    /// `[rows, d_model]`.
    hidden: Tensor<B, 2>,
    /// `[rows]`.
    targets: Tensor<B, 1, Int>,
}

fn blocks<B: Backend>(
    hidden: FloatTensor<B>,
    targets: IntTensor<B>,
    rows: usize,
) -> impl Iterator<Item = Block<B>> {
    let hidden = typed::<B, 2>(hidden);
    let targets = Tensor::<B, 1, Int>::from_primitive(targets);
    let tokens = hidden.dims()[0];
    (0..tokens).step_by(rows).map(move |start| {
        let rows = rows.min(tokens - start);
        Block {
            hidden: hidden.clone().narrow(0, start, rows),
            targets: targets.clone().narrow(0, start, rows),
        }
    })
}

/// The pieces of a softmax.
struct Exponentials<B: Backend> {
    /// `exp(logits - max)`, `[rows, vocab_size]`.
    exp: Tensor<B, 2>,
    /// Its sum over the vocabulary, `[rows, 1]`.
    sum: Tensor<B, 2>,
    /// `ln Σ exp(logits)`, `[rows, 1]`.
    log_sum: Tensor<B, 2>,
}

fn exponentials<B: Backend>(logits: Tensor<B, 2>) -> Exponentials<B> {
    let max = logits.clone().max_dim(1); // [rows, 1]
    let exp = (logits - max.clone()).exp();
    let sum = exp.clone().sum_dim(1); // [rows, 1]
    let log_sum = sum.clone().log() + max;
    Exponentials { exp, sum, log_sum }
}
