//! The language-model head with its cross-entropy, in blocks of rows.

use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{IndexingUpdateOp, Int, Tensor};

use super::product::{product, raised_product};
use super::{primitive, typed};
use crate::{HeadLossGradients, HeadLossOptions, Precision};

/// How many tokens' logits are held at once, of a vocabulary: 64 MiB of f32.
pub fn rows_per_block(vocab_size: usize) -> usize {
    ((1 << 24) / vocab_size.max(1)).max(1)
}

/// What `g` is multiplied by for `dhidden` in f16: most of it are probabilities of about `1/V` and less, and f16 loses digits below
/// 6e-5 and everything below 6e-8. The sizes of a row of `g` add up to at most 2, so that what is added up in f16 is no larger than
/// 4096 times the largest weight, and in its range, up to 65,504, for weights below 16. (With z-loss all by `1 + 2zL`, which
/// is next to 1.)
const RAISED: f64 = 2048.0;

/// The same for `dW`, whose sums over `rows` tokens are no larger than `rows` times the largest hidden state: the factor times
/// `rows` is at most 2^13, which is in the range for hidden states below 8 even where all tokens are sure of one and the same.
fn raised_by(rows: usize) -> f64 {
    8192.0 / rows.next_power_of_two() as f64
}

/// See [`crate::Backend::head_loss`]; the logits of `rows` tokens are held at once.
pub fn head_loss<B: Backend>(
    hidden: FloatTensor<B>,
    weight: FloatTensor<B>,
    targets: IntTensor<B>,
    options: HeadLossOptions,
    rows: usize,
    precision: Precision,
) -> FloatTensor<B> {
    let weight = typed::<B, 2>(weight); // [vocab_size, d_model]
    let mut loss = Tensor::zeros([1], &weight.device());
    for block in blocks::<B>(hidden, targets, rows) {
        let logits = block.logits(&weight, options, precision); // [rows, vocab_size]
        let target_logits = block.target_logits(&logits);
        let even_logits = even_logits(&logits, options);
        let log_sum = exponentials(logits).log_sum;
        loss = loss + block_loss(&block, target_logits, log_sum, even_logits, options);
    }
    primitive(loss)
}

/// See [`crate::Backend::head_loss_gradients`]; the logits of `rows` tokens are held at once.
///
/// With `p = softmax(logits)`, `y` the targets' one-hot rows, `V` the vocabulary's size and `L` as in
/// [`HeadLossOptions`], the gradient by the logits is `g = (1 + 2zL) · p - (1 - ε) · y - ε/V`, and `dhidden = g W`,
/// `dW = gᵀ hidden`. The parts of `y` are gathered and scattered rows and those of `ε/V` one row each, so `p` is all that
/// is ever made of `[rows, vocab_size]`. Where a target is ignored `g` is 0: its row of `hidden` is left out of `dW` and its
/// row of `dhidden` is made 0, both of `[rows, d_model]`.
///
/// With a soft cap `c` that is the gradient by the capped logits `x`, and the one by the logits is `(1 - (x/c)²) · g`: its
/// part of `ε/V` is no constant row any more and is made of `[rows, vocab_size]` with `p`.
///
/// In the other precisions than f32 `y` is put into `g` before that is rounded: where the model is sure of a target, a rounded
/// `p W` less a row of `W` as it is would be the roundings alone. In f16 `g` is raised above what that loses, by `RAISED` and
/// `raised_by`, and what comes out divided by it again.
pub fn head_loss_gradients<B: Backend>(
    hidden: FloatTensor<B>,
    weight: FloatTensor<B>,
    targets: IntTensor<B>,
    options: HeadLossOptions,
    rows: usize,
    precision: Precision,
) -> HeadLossGradients<B> {
    let weight = typed::<B, 2>(weight); // [vocab_size, d_model]
    let [vocab_size, width] = weight.dims();
    let device = weight.device();
    let even = even_row(&weight, options);
    let mut loss = Tensor::zeros([1], &device);
    let mut weight_grad: Option<Tensor<B, 2>> = None;
    let mut hidden_grads = Vec::new();
    // Σ hidden over the tokens that are learnt, [1, d_model]; for the even part alone.
    let mut hidden_sum: Option<Tensor<B, 2>> = None;
    for block in blocks::<B>(hidden, targets, rows) {
        let logits = block.logits(&weight, options, precision); // [rows, vocab_size]
        let target_logits = block.target_logits(&logits);
        let even_logits = even_logits(&logits, options);
        // The targets' part of g with its sign turned, [rows, 1].
        let mut pull = block.learnt.clone() * (1.0 - options.label_smoothing);
        let mut slopes = None;
        if options.soft_cap > 0.0 {
            pull = pull * slope(target_logits.clone(), options.soft_cap);
            slopes = Some(slope(logits.clone(), options.soft_cap));
        }
        let Exponentials { exp, sum, log_sum } = exponentials(logits);
        // (1 + 2zL) · p, and with a cap all of g but the targets' part
        let mut grad = match options.z_loss {
            0.0 => exp / sum,
            z => exp * ((log_sum.clone() * (2.0 * z) + 1.0) / sum),
        };
        if let Some(slopes) = slopes {
            grad = (grad - options.label_smoothing / vocab_size as f64) * slopes;
        }
        loss = loss + block_loss(&block, target_logits, log_sum, even_logits, options);
        let learnt_hidden = block.hidden * block.learnt.clone(); // [rows, d_model]
        // Beside the products, or none where they have it.
        let beside = match precision {
            Precision::F32 => Some(pull),
            Precision::Bf16 | Precision::F16 => {
                let targets = block.targets.clone().unsqueeze_dim(1);
                grad = grad.scatter(1, targets, -pull, IndexingUpdateOp::Add);
                None
            }
        };
        let mut hidden_grad = raised_product(grad.clone(), weight.clone(), precision, RAISED);
        if let Some(pull) = &beside {
            let target_rows = weight.clone().select(0, block.targets.clone()); // [rows, d_model]
            hidden_grad = hidden_grad - target_rows * pull.clone();
        }
        if let Some(even) = &even {
            hidden_grad = hidden_grad - even.clone();
            let sum = learnt_hidden.clone().sum_dim(0); // [1, d_model]
            hidden_sum = Some(match hidden_sum {
                Some(all) => all + sum,
                None => sum,
            });
        }
        hidden_grads.push(hidden_grad * block.learnt);
        let target_hidden = beside.map(|pull| learnt_hidden.clone() * pull);
        let factor = raised_by(learnt_hidden.dims()[0]);
        let part = raised_product(grad.transpose(), learnt_hidden, precision, factor); // [vocab_size, d_model]
        let mut sum = match weight_grad {
            Some(sum) => sum + part,
            None => part,
        };
        if let Some(rows) = target_hidden {
            sum = sum.select_assign(0, block.targets, -rows, IndexingUpdateOp::Add);
        }
        weight_grad = Some(sum);
    }
    let mut weight_grad =
        weight_grad.unwrap_or_else(|| Tensor::zeros([vocab_size, width], &device));
    if let Some(sum) = hidden_sum {
        weight_grad = weight_grad - sum * (options.label_smoothing / vocab_size as f64);
    }
    HeadLossGradients {
        loss: primitive(loss),
        hidden: primitive(Tensor::cat(hidden_grads, 0)),
        weight: primitive(weight_grad),
    }
}

/// `ε · Σ_v W_v / V`, `[1, d_model]`: the part of `ε/V` of each row of `dhidden`. None without label smoothing, and with a
/// soft cap.
fn even_row<B: Backend>(weight: &Tensor<B, 2>, options: HeadLossOptions) -> Option<Tensor<B, 2>> {
    let smoothing = options.label_smoothing;
    (smoothing != 0.0 && options.soft_cap == 0.0).then(|| weight.clone().mean_dim(0) * smoothing)
}

/// `ε · Σ_v x_v / V`, `[rows, 1]`. None without label smoothing.
fn even_logits<B: Backend>(
    logits: &Tensor<B, 2>,
    options: HeadLossOptions,
) -> Option<Tensor<B, 2>> {
    let smoothing = options.label_smoothing;
    (smoothing != 0.0).then(|| logits.clone().mean_dim(1) * smoothing)
}

/// What a change of a logit before the cap `c` changes of it after, `1 - (x/c)²`.
fn slope<B: Backend>(x: Tensor<B, 2>, cap: f64) -> Tensor<B, 2> {
    let ratio = x / cap;
    -(ratio.clone() * ratio) + 1.0
}

/// The loss of a block, `[1]`, from the targets' logits, `L` and what [`even_logits`] gives, `[rows, 1]` each.
fn block_loss<B: Backend>(
    block: &Block<B>,
    target_logits: Tensor<B, 2>,
    log_sum: Tensor<B, 2>,
    even_logits: Option<Tensor<B, 2>>,
    options: HeadLossOptions,
) -> Tensor<B, 1> {
    let mut loss = log_sum.clone() - target_logits * (1.0 - options.label_smoothing);
    if let Some(even_logits) = even_logits {
        loss = loss - even_logits;
    }
    if options.z_loss != 0.0 {
        loss = loss + log_sum.clone() * log_sum * options.z_loss;
    }
    (loss * block.learnt.clone()).sum()
}

/// Some rows of the hidden states with their targets.
struct Block<B: Backend> {
    /// `[rows, d_model]`.
    hidden: Tensor<B, 2>,
    /// `[rows]`; where they are ignored, any token of the vocabulary.
    targets: Tensor<B, 1, Int>,
    /// 0 where the target is ignored, 1 elsewhere, `[rows, 1]`.
    learnt: Tensor<B, 2>,
}

impl<B: Backend> Block<B> {
    /// The logits, `[rows, vocab_size]`, capped where they are to be.
    fn logits(
        &self,
        weight: &Tensor<B, 2>,
        options: HeadLossOptions,
        precision: Precision,
    ) -> Tensor<B, 2> {
        let logits = product(self.hidden.clone(), weight.clone().transpose(), precision);
        match options.soft_cap {
            0.0 => logits,
            cap => (logits / cap).tanh() * cap,
        }
    }

    /// The targets' logits, `[rows, 1]`, of `[rows, vocab_size]`.
    fn target_logits(&self, logits: &Tensor<B, 2>) -> Tensor<B, 2> {
        logits
            .clone()
            .gather(1, self.targets.clone().unsqueeze_dim(1))
    }
}

fn blocks<B: Backend>(
    hidden: FloatTensor<B>,
    targets: IntTensor<B>,
    rows: usize,
) -> impl Iterator<Item = Block<B>> {
    let hidden = typed::<B, 2>(hidden);
    let targets = Tensor::<B, 1, Int>::from_primitive(targets);
    let learnt = targets.clone().greater_equal_elem(0).float();
    let learnt = learnt.unsqueeze_dim(1); // [tokens, 1]
    let targets = targets.clamp_min(0);
    let tokens = hidden.dims()[0];
    (0..tokens).step_by(rows).map(move |start| {
        let rows = rows.min(tokens - start);
        Block {
            hidden: hidden.clone().narrow(0, start, rows),
            targets: targets.clone().narrow(0, start, rows),
            learnt: learnt.clone().narrow(0, start, rows),
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
