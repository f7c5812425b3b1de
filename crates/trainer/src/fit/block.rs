//! The memory that one block keeps for its gradients, and the buffers of its backward pass.
//!
//! Elements per token, with width `d`, combined query heads' and key heads' widths `q` and `k`, and
//! feed-forward width `F`; `[dropout]` only if enabled at that site:
//!
//! ```text
//! norms                  4d             each: its input and its output, which the next linear layer keeps
//!                        3d             with parallel wiring: one input for both
//!                        8d             in a sandwich: two more norms
//! attention              q + 2k         the output of the fused projection, rotated in place
//!                        q + k          with norms of queries and keys: their outputs
//!                        heads          the log-sum-exp of each query's scores
//!                        q              the output, which the output projection keeps
//! feed-forward           2F             before and after the activation; the next linear layer keeps the latter
//!                        3F             gated: the outputs of both linear layers and their product
//!                        F              [dropout]'s mask
//!                        2ad + 4e       with `a` of `e` experts, whose widths `F` adds up: rows and probabilities
//! cross-attention        2d + 2q        its norm, queries and output
//!                        heads          the log-sum-exp of each query's scores
//! residual               2d             [dropout]'s masks; 3d with cross-attention
//! ```
//!
//! Linear attention also keeps `q + k` (copies) and `f (2 heads + 4 kv_heads)` for `f` features, `c (2 heads +
//! 2 kv_heads)` for chunks of `c` tokens, and `3q`: its plain operations' inputs.
//!
//! Independent of the number of sequences, a bias of the scores takes `heads · seq²`, for which the backward pass has two
//! gradients. Cross-attention keeps the keys and values of the memory, `2k` per token of the memory.
//!
//! The backward pass frees the components of a block one after the other. Its peak is either at the
//! activation's gradient (two or three buffers of `F` while everything is still kept) or in attention, after
//! the feed-forward layers are freed.

use emberlm_kernels::{DELTA_RULE_CHUNK, LINEAR_ATTENTION_CHUNK};
use emberlm_model::config::{FeedForwardKind, Wiring};
use emberlm_model::nn::{AttentionConfig, BlockConfig, Mechanism};

/// The memory of a block for one micro-batch, in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// Kept from the forward pass for the backward pass.
    pub kept: f64,
    /// The peak of the backward pass's buffers, minus the memory freed by then.
    pub backward: f64,
    /// The peak of a forward pass that keeps nothing for gradients.
    pub forward: f64,
}

/// The sequences that a block processes.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockInput {
    /// Tokens of all sequences.
    pub tokens: f64,
    /// Tokens per sequence.
    pub seq: f64,
    /// Tokens of all memories that cross-attention attends to.
    pub memory: f64,
    /// True if the scores have a bias for each pair of positions.
    pub biased: bool,
}

impl BlockInput {
    /// `tokens` tokens in sequences of `seq`, without a memory or a bias.
    pub fn new(tokens: f64, seq: f64) -> Self {
        Self {
            tokens,
            seq,
            memory: 0.0,
            biased: false,
        }
    }
}

impl Block {
    /// The memory of a block for an input.
    pub fn of(config: &BlockConfig, input: BlockInput) -> Self {
        let wide = |n: usize| n as f64;
        let attention = &config.attention;
        let BlockInput {
            tokens,
            seq,
            memory,
            biased,
        } = input;
        let d = wide(attention.d_model);
        let keys = wide(attention.kv_heads * attention.head_dim);
        let queries = match attention.mechanism {
            Mechanism::Delta(delta) => wide(attention.heads * delta.value_dim),
            Mechanism::Softmax { .. } | Mechanism::Linear { .. } => {
                wide(attention.heads * attention.head_dim)
            }
        };
        let width = wide(config.feed_forward.width);

        let norms = match config.wiring {
            Wiring::PreNorm | Wiring::PostNorm | Wiring::OutputNorm => 4.0,
            Wiring::Sandwich => 8.0,
            Wiring::Parallel { .. } => 3.0,
        } * d;
        let linear = matches!(attention.mechanism, Mechanism::Linear { .. });
        let separate = attention.qk_norm.is_some() || linear;
        let copies =
            if_present(separate, queries + keys) + if_present(attention.gated, 3.0 * queries);
        // Heads are put together from rotated and other parts, and padded to one width.
        let copies = copies + if_present(attention.latent.is_some(), 3.0 * (queries + 2.0 * keys));
        let inside = inside_attention(attention, seq);
        let maps = match config.feed_forward.kind {
            FeedForwardKind::Dense => 2.0,
            FeedForwardKind::Gated => 3.0,
        };
        let dropped = config.feed_forward.dropout > 0.0;
        let feed_forward = maps * width + if_present(dropped, width);
        let (width, feed_forward) = match &config.experts {
            Some(experts) => {
                let [count, active] = [experts.count, experts.routing.active].map(wide);
                let shared = experts.shared_width.map_or(0.0, wide);
                let hidden = active * wide(experts.expert.width) + shared;
                let rows = 2.0 * active * d + 4.0 * count;
                let dropped = if_present(experts.expert.dropout > 0.0, hidden);
                (hidden, maps * hidden + dropped + rows)
            }
            None => (width, feed_forward),
        };
        let cross = config.cross_attention.as_ref().map(|cross| {
            let queries = wide(cross.heads * cross.head_dim);
            let of_memory = 2.0 * wide(cross.kv_heads * cross.head_dim) * memory;
            (2.0 * d + 2.0 * queries + wide(cross.heads), of_memory)
        });
        let sublayers = if cross.is_some() { 3.0 } else { 2.0 };
        let (cross, of_memory) = cross.unwrap_or_default();
        let residual = if_present(config.dropout > 0.0, sublayers * d);
        let heads = 2.0 * queries + 2.0 * keys + copies;
        let kept = norms + heads + inside + feed_forward + cross + residual;
        let bias = if_present(biased, wide(attention.heads) * seq * seq);

        let activation = maps * width + 2.0 * d;
        let attending = inside + 2.0 * (queries + 2.0 * keys) - feed_forward - 2.0 * d;
        let mixing = 3.0 * queries + 4.0 * keys + inside;
        Self {
            kept: tokens * kept + of_memory + bias,
            backward: tokens * activation.max(attending) + 2.0 * bias,
            forward: tokens * mixing.max(maps * width + d) + bias,
        }
    }
}

fn if_present(present: bool, count: f64) -> f64 {
    if present { count } else { 0.0 }
}

/// The elements per token that attention keeps in addition to its queries, keys, values and output.
fn inside_attention(attention: &AttentionConfig, seq: f64) -> f64 {
    let [heads, kv_heads, head_dim] =
        [attention.heads, attention.kv_heads, attention.head_dim].map(|n| n as f64);
    match attention.mechanism {
        Mechanism::Softmax { .. } => heads,
        Mechanism::Linear { features, .. } => {
            let chunk = seq.min(LINEAR_ATTENTION_CHUNK as f64);
            features as f64 * (2.0 * heads + 4.0 * kv_heads)
                + chunk * (2.0 * heads + 2.0 * kv_heads)
                + 3.0 * heads * head_dim
        }
        Mechanism::Delta(delta) => {
            // Taps of the convolutions; normalized and repeated queries and keys, with their factors; the systems and their
            // inverses; what a chunk reads and writes; the memory after each chunk.
            let value = delta.value_dim as f64;
            let channels = 2.0 * kv_heads * head_dim + heads * value;
            let chunk = seq.min(DELTA_RULE_CHUNK as f64);
            let doublings = chunk.log2().ceil().max(1.0);
            let systems = chunk * heads * (6.0 + 5.0 * doublings);
            let memory = 3.0 * heads * head_dim * value / chunk.max(1.0);
            channels * (delta.taps as f64 + 4.0)
                + heads * (8.0 * head_dim + 9.0 * value)
                + systems
                + memory
        }
    }
}
