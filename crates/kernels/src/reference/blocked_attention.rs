//! Attention in blocks of queries, with memory linear in the sequence length, and its gradient, which recomputes
//! the weights block by block (Dao et al. 2022, "FlashAttention"; here with whole rows of scores, composed of
//! plain operations).

use std::ops::Range;

use burn::tensor::Tensor;
use burn::tensor::ops::FloatTensor;

use super::attention::{attention, stacked};
use super::attention_blocks::{AttentionBlocks, visible_keys};
use super::attention_dropout::{DropoutDraws, kept_factor};
use super::attention_scores::{ScoreRange, Scores, narrowed, uncapped, where_any_key};
use super::product::product;
use super::sinks::{of_queries, sink_gradient};
use super::{primitive, typed};
use crate::{AttentionGradients, AttentionMask, AttentionOptions, BaseOps};

/// The state of [`blocked_attention_backward`], which recomputes the weights from it. It is linear in the
/// sequence length.
#[derive(Clone, Debug)]
pub struct BlockedState<B: BaseOps> {
    /// Queries, rotated, `[batch, heads, q_len, head_dim]`.
    pub q: FloatTensor<B>,
    /// Keys, rotated, `[batch, kv_heads, k_len, head_dim]`.
    pub k: FloatTensor<B>,
    /// Values, `[batch, kv_heads, k_len, head_dim]`.
    pub v: FloatTensor<B>,
    /// The output, shaped as the queries, or `[batch, seq, heads · head_dim]` for a fused projection.
    pub output: FloatTensor<B>,
    /// `ln Σ exp(scores)` of each query, `[batch, heads, q_len, 1]`.
    pub log_sums: FloatTensor<B>,
    /// The mask of the forward pass.
    pub mask: AttentionMask<B>,
    /// The random numbers of the dropout; `None` without dropout.
    pub draws: Option<DropoutDraws<B>>,
}

/// See [`crate::AttentionKernels::attention`]. Inputs that fit one block, such as a single query, use
/// [`attention`].
pub fn blocked_attention<B: BaseOps>(
    q: FloatTensor<B>,
    k: FloatTensor<B>,
    v: FloatTensor<B>,
    mask: AttentionMask<B>,
    options: AttentionOptions,
    blocks: Option<AttentionBlocks>,
) -> FloatTensor<B> {
    let inputs = Inputs::<B>::new([q, k, v], mask, None, options);
    let blocks = blocks.unwrap_or_else(|| inputs.blocks());
    let [batch, _, q_len, _] = inputs.q.dims();
    if q_len == 1 || blocks.is_single(batch, q_len) {
        let [q, k, v] = [inputs.q, inputs.k, inputs.v].map(primitive);
        return attention::<B>(q, k, v, inputs.mask, options);
    }
    let mut rows = Vec::new();
    for sequences in blocks.sequence_ranges(batch) {
        let outputs = blocks.query_ranges(q_len).map(|queries| {
            let block = inputs.block(&sequences, queries);
            let (weights, _) = block.softmax(block.scores());
            block.mixed(weights)
        });
        rows.push(joined(outputs.collect(), 2));
    }
    primitive(joined(rows, 0))
}

/// See [`crate::AttentionKernels::attention_training`].
pub fn blocked_attention_training<B: BaseOps>(
    q: FloatTensor<B>,
    k: FloatTensor<B>,
    v: FloatTensor<B>,
    mask: AttentionMask<B>,
    options: AttentionOptions,
    blocks: Option<AttentionBlocks>,
) -> (FloatTensor<B>, BlockedState<B>) {
    let mut inputs = Inputs::<B>::new([q, k, v], mask, None, options);
    let [batch, heads, q_len, _] = inputs.q.dims();
    if options.dropout > 0.0 {
        let (k_len, device) = (inputs.k.dims()[2], inputs.q.device());
        inputs.draws = Some(DropoutDraws::new([batch, heads, q_len], k_len, &device));
    }
    let blocks = blocks.unwrap_or_else(|| inputs.blocks());
    let (mut outputs, mut log_sums) = (Vec::new(), Vec::new());
    for sequences in blocks.sequence_ranges(batch) {
        let (mut output, mut log_sum) = (Vec::new(), Vec::new());
        for queries in blocks.query_ranges(q_len) {
            let block = inputs.block(&sequences, queries);
            let (weights, sums) = block.softmax(block.scores());
            output.push(block.mixed(block.kept(weights)));
            log_sum.push(sums);
        }
        outputs.push(joined(output, 2));
        log_sums.push(joined(log_sum, 2));
    }
    let output = primitive(joined(outputs, 0));
    let state = BlockedState {
        q: primitive(inputs.q),
        k: primitive(inputs.k),
        v: primitive(inputs.v),
        output: output.clone(),
        log_sums: primitive(joined(log_sums, 0)),
        mask: inputs.mask,
        draws: inputs.draws,
    };
    (output, state)
}

/// See [`crate::AttentionKernels::attention_backward`].
///
/// With a block's scores `S`, the log-sums `L` of its queries, `P = exp(S - L)`, the dropout factors `M`, the
/// output `O` and `D = rowsum(dO ∘ O)`, which equals `rowsum(P ∘ dP)`: `dV += (P ∘ M)ᵀ dO`, `dP = dO Vᵀ ∘ M`,
/// `dS = P ∘ (dP - D)`. The gradient of the bias accumulates `Σ dS` over the sequences. With
/// `T = tanh(scale · q kᵀ / cap)` of a soft cap, `dX = dS ∘ (1 - T²) · scale`, `dQ = dX K`, `dK += dXᵀ Q`.
///
/// Blocks are processed from last to first. Without a window, the gradients of the last block cover all keys, so
/// they initialize the sums and the other blocks are added in place. No buffer has to be zeroed.
pub fn blocked_attention_backward<B: BaseOps>(
    state: BlockedState<B>,
    grad: FloatTensor<B>,
    options: AttentionOptions,
    bias: bool,
    blocks: Option<AttentionBlocks>,
) -> AttentionGradients<B> {
    let attending = [state.q, state.k, state.v];
    let inputs = Inputs::<B>::new(attending, state.mask, state.draws, options);
    let sinks = inputs.mask.sinks.as_ref().map(|sinks| {
        let [log_sums, output] = [&state.log_sums, &state.output].map(Clone::clone);
        sink_gradient::<B>(sinks, log_sums, output, grad.clone())
    });
    let grad = typed::<B, 4>(grad); // [batch, heads, q_len, head_dim]
    let log_sums = typed::<B, 4>(state.log_sums); // [batch, heads, q_len, 1]
    let along = (grad.clone() * typed(state.output)).sum_dim(3); // [batch, heads, q_len, 1]
    let [batch, _, q_len, _] = inputs.q.dims();
    let blocks = blocks.unwrap_or_else(|| inputs.blocks());
    let mut grads_by_row = [Vec::new(), Vec::new(), Vec::new()];
    let mut bias_sum = bias.then(|| {
        let [_, heads, q_len, _] = inputs.q.dims();
        let all = [heads, q_len, inputs.k.dims()[2]];
        Tensor::<B, 3>::zeros(all, &inputs.q.device())
    });
    for sequences in blocks.sequence_ranges(batch) {
        let mut q_grads = Vec::new();
        let [mut k_sum, mut v_sum] = [0, 1].map(|_| KeySum::new(inputs.k.dims()[2]));
        for queries in blocks.query_ranges(q_len).rev() {
            let block = inputs.block(&sequences, queries);
            let of_block = |x: &Tensor<B, 4>| narrowed(x, 2, &block.range.queries);
            let [grad, log_sums, along] =
                [&grad, &log_sums, &along].map(|x| of_block(&narrowed(x, 0, &sequences)));
            let grads = block.gradients(log_sums, grad, along, bias);
            q_grads.push(grads.q);
            k_sum.add(&block.range.keys, grads.k);
            v_sum.add(&block.range.keys, grads.v);
            if let (Some(sum), Some(scores)) = (&mut bias_sum, grads.scores) {
                let [_, heads, queries, keys] = scores.dims();
                let added = scores.sum_dim(0).reshape([heads, queries, keys]);
                let ranges = [
                    0..heads,
                    block.range.queries.clone(),
                    block.range.keys.clone(),
                ];
                let added = sum.clone().slice(ranges.clone()) + added;
                *sum = sum.clone().slice_assign(ranges, added);
            }
        }
        q_grads.reverse();
        grads_by_row[0].push(joined(q_grads, 2));
        grads_by_row[1].push(k_sum.sum(&inputs.k));
        grads_by_row[2].push(v_sum.sum(&inputs.v));
    }
    let [q, k, v] = grads_by_row.map(|of| primitive(joined(of, 0)));
    AttentionGradients {
        q,
        k,
        v,
        bias: bias_sum.map(primitive),
        sinks,
    }
}

/// Queries, keys and values with their mask and options.
struct Inputs<B: BaseOps> {
    /// `[batch, heads, q_len, head_dim]`.
    q: Tensor<B, 4>,
    /// `[batch, kv_heads, k_len, head_dim]`.
    k: Tensor<B, 4>,
    /// `[batch, kv_heads, k_len, head_dim]`.
    v: Tensor<B, 4>,
    mask: AttentionMask<B>,
    draws: Option<DropoutDraws<B>>,
    options: AttentionOptions,
}

impl<B: BaseOps> Inputs<B> {
    fn new(
        inputs: [FloatTensor<B>; 3],
        mask: AttentionMask<B>,
        draws: Option<DropoutDraws<B>>,
        options: AttentionOptions,
    ) -> Self {
        let [q, k, v] = inputs.map(typed);
        Self {
            q,
            k,
            v,
            mask,
            draws,
            options,
        }
    }

    fn blocks(&self) -> AttentionBlocks {
        let [batch, heads, q_len, _] = self.q.dims();
        let bytes = B::block_bytes(&self.q.device());
        AttentionBlocks::new([batch, heads, q_len], self.k.dims()[2], bytes)
    }

    /// The block of these queries of these sequences, with the keys that are visible to some of them.
    fn block(&self, sequences: &Range<usize>, queries: Range<usize>) -> Block<'_, B> {
        let (q_len, [_, kv_heads, k_len, _]) = (self.q.dims()[2], self.k.dims());
        let keys = visible_keys(&queries, [q_len, k_len], self.options.reach);
        let of = |x: &Tensor<B, 4>, range| narrowed(&narrowed(x, 0, sequences), 2, range);
        Block {
            q: stacked(of(&self.q, &queries), kv_heads),
            k: of(&self.k, &keys),
            v: of(&self.v, &keys),
            inputs: self,
            range: ScoreRange {
                sequences: sequences.clone(),
                queries,
                keys,
            },
        }
    }
}

/// The inputs of one block.
struct Block<'a, B: BaseOps> {
    /// `[sequences, kv_heads, heads / kv_heads · queries, head_dim]`.
    q: Tensor<B, 4>,
    /// `[sequences, kv_heads, keys, head_dim]`.
    k: Tensor<B, 4>,
    /// `[sequences, kv_heads, keys, head_dim]`.
    v: Tensor<B, 4>,
    inputs: &'a Inputs<B>,
    range: ScoreRange,
}

impl<B: BaseOps> Block<'_, B> {
    /// The shape `[sequences, heads, queries, width]`.
    fn by_heads(&self, width: usize) -> [usize; 4] {
        let heads = self.inputs.q.dims()[1];
        let ScoreRange {
            sequences, queries, ..
        } = &self.range;
        [sequences.len(), heads, queries.len(), width]
    }

    fn scores(&self) -> Scores<B> {
        let Inputs {
            q,
            k,
            mask,
            options,
            ..
        } = self.inputs;
        let products = product(
            self.q.clone(),
            self.k.clone().transpose(),
            options.precision,
        );
        let products = products.reshape(self.by_heads(self.range.keys.len()));
        let lengths = [q, k].map(|x| x.dims()[2]);
        Scores::new(products, &self.range, lengths, mask, *options)
    }

    /// Returns the softmax, and `ln Σ exp(scores)`, `[sequences, heads, queries, 1]`.
    fn softmax(&self, scores: Scores<B>) -> (Tensor<B, 4>, Tensor<B, 4>) {
        let max = scores.values.clone().max_dim(3);
        let sinks = self.inputs.mask.sinks.as_ref();
        let sinks = sinks.map(|sinks| of_queries(sinks, &max));
        let max = match &sinks {
            Some(sinks) => max.max_pair(sinks.clone()),
            None => max,
        };
        let exp = (scores.values - max.clone()).exp();
        let sum = exp.clone().sum_dim(3);
        let sum = match sinks {
            Some(sinks) => sum + (sinks - max.clone()).exp(),
            None => sum,
        };
        let weights = where_any_key(exp / sum.clone(), scores.any_key);
        (weights, sum.log() + max)
    }

    /// Applies dropout to weights `[sequences, heads, queries, keys]`.
    fn kept(&self, weights: Tensor<B, 4>) -> Tensor<B, 4> {
        let options = self.inputs.options;
        match &self.inputs.draws {
            Some(draws) => {
                let of = [&self.range.sequences, &self.range.queries, &self.range.keys];
                let dropped = draws.dropped(of, options.dropout);
                weights.mask_fill(dropped, 0.0) * kept_factor(options.dropout)
            }
            None => weights,
        }
    }

    /// The sum of the values with these weights, `[sequences, heads, queries, head_dim]`.
    fn mixed(&self, weights: Tensor<B, 4>) -> Tensor<B, 4> {
        let [_, kv_heads, _, head_dim] = self.v.dims();
        let weights = stacked(weights, kv_heads);
        let mixed = product(weights, self.v.clone(), self.inputs.options.precision);
        mixed.reshape(self.by_heads(head_dim))
    }

    /// The gradients of a block, from the log-sums of the queries, the gradient of the output, and `along`, the
    /// row sums of that gradient times the output. `bias` requests the gradient of the masked scores.
    fn gradients(
        &self,
        log_sums: Tensor<B, 4>,
        grad: Tensor<B, 4>,
        along: Tensor<B, 4>,
        bias: bool,
    ) -> BlockGradients<B> {
        let AttentionOptions {
            scale, precision, ..
        } = self.inputs.options;
        let (kv_heads, head_dim) = (self.k.dims()[1], self.q.dims()[3]);
        let scores = self.scores();
        let weights = (scores.values - log_sums).exp(); // [sequences, heads, queries, keys]
        let weights = where_any_key(weights, scores.any_key);
        let grad = stacked(grad, kv_heads);
        let applied = stacked(self.kept(weights.clone()), kv_heads);
        let v = product(applied.transpose(), grad.clone(), precision);
        let weights_grad = product(grad, self.v.clone().transpose(), precision);
        let weights_grad = self.kept(weights_grad.reshape(weights.dims()));
        let scores_grad = weights * (weights_grad - along);
        let masked_grad = bias.then(|| scores_grad.clone());
        let by_keys = uncapped(scores_grad, scores.bounded) * scale;
        let by_keys = stacked(by_keys, kv_heads);
        let q = product(by_keys.clone(), self.k.clone(), precision);
        BlockGradients {
            q: q.reshape(self.by_heads(head_dim)),
            k: product(by_keys.transpose(), self.q.clone(), precision),
            v,
            scores: masked_grad,
        }
    }
}

/// The contribution of a block to the gradients.
struct BlockGradients<B: BaseOps> {
    /// `[sequences, heads, queries, head_dim]`.
    q: Tensor<B, 4>,
    /// `[sequences, kv_heads, keys, head_dim]`.
    k: Tensor<B, 4>,
    /// `[sequences, kv_heads, keys, head_dim]`.
    v: Tensor<B, 4>,
    /// `[sequences, heads, queries, keys]`, if the gradient of a bias is requested.
    scores: Option<Tensor<B, 4>>,
}

/// The sum of the blocks' gradients of keys or values.
struct KeySum<B: BaseOps> {
    k_len: usize,
    sum: Option<Tensor<B, 4>>,
}

impl<B: BaseOps> KeySum<B> {
    fn new(k_len: usize) -> Self {
        Self { k_len, sum: None }
    }

    /// Adds the gradients `[sequences, kv_heads, keys, head_dim]` of a range of keys.
    fn add(&mut self, keys: &Range<usize>, x: Tensor<B, 4>) {
        let [sequences, heads, _, width] = x.dims();
        let sum = match self.sum.take() {
            None if keys.len() == self.k_len => x,
            sum => {
                let all = [sequences, heads, self.k_len, width];
                let sum = sum.unwrap_or_else(|| Tensor::zeros(all, &x.device()));
                let added = narrowed(&sum, 2, keys) + x;
                sum.slice_assign([0..sequences, 0..heads, keys.clone(), 0..width], added)
            }
        };
        self.sum = Some(sum);
    }

    /// Returns the sum, or zeros in the shape of `like` if nothing was added.
    fn sum(self, like: &Tensor<B, 4>) -> Tensor<B, 4> {
        self.sum.unwrap_or_else(|| like.zeros_like())
    }
}

/// Concatenates the parts, of which there must be at least one.
fn joined<B: BaseOps>(mut parts: Vec<Tensor<B, 4>>, dim: usize) -> Tensor<B, 4> {
    match (parts.len(), parts.pop()) {
        (1, Some(all)) => all,
        (_, last) => Tensor::cat(parts.into_iter().chain(last).collect(), dim),
    }
}
