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
//! residual               2d             [dropout]'s masks
//! ```
//!
//! Linear attention also keeps `q + k` (copies) and `f (2 heads + 4 kv_heads)` for `f` features, `c (2 heads +
//! 2 kv_heads)` for chunks of `c` tokens, and `3q`: its plain operations' inputs.
//!
//! The backward pass frees the components of a block one after the other. Its peak is either at the
//! activation's gradient (two or three buffers of `F` while everything is still kept) or in attention, after
//! the feed-forward layers are freed.

use emberlm_kernels::LINEAR_ATTENTION_CHUNK;
use emberlm_model::DecoderConfig;
use emberlm_model::config::{DropoutSite, FeedForwardKind, Wiring};
use emberlm_model::nn::Mechanism;

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

impl Block {
    /// The memory for `tokens` tokens in sequences of `seq`.
    pub fn of(model: &DecoderConfig, tokens: f64, seq: f64) -> Self {
        let wide = |n: usize| n as f64;
        let d = wide(model.d_model());
        let queries = wide(model.heads() * model.head_dim());
        let keys = wide(model.kv_heads() * model.head_dim());
        let width = wide(model.feed_forward_width());
        let dropped = |site| model.dropout_at(site) > 0.0;

        let norms = match model.wiring() {
            Wiring::PreNorm | Wiring::PostNorm | Wiring::OutputNorm => 4.0,
            Wiring::Sandwich => 8.0,
            Wiring::Parallel { .. } => 3.0,
        } * d;
        let mechanism = model.attention_of(0).mechanism;
        let separate = model.qk_norm() || matches!(mechanism, Mechanism::Linear { .. });
        let copies = if_present(separate, queries + keys);
        let inside = inside_attention(model, seq);
        let maps = match model.feed_forward().kind {
            FeedForwardKind::Dense => 2.0,
            FeedForwardKind::Gated => 3.0,
        };
        let feed_forward = maps * width + if_present(dropped(DropoutSite::Hidden), width);
        let (width, feed_forward) = match model.experts() {
            Some(experts) => {
                let [count, active] = [experts.count, experts.active].map(wide);
                let shared = experts.shared_width.map_or(0.0, wide);
                let hidden = active * experts.width.map_or(width, wide) + shared;
                let rows = 2.0 * active * d + 4.0 * count;
                let dropped = if_present(dropped(DropoutSite::Hidden), hidden);
                (hidden, maps * hidden + dropped + rows)
            }
            None => (width, feed_forward),
        };
        let residual = if_present(dropped(DropoutSite::Residual), 2.0 * d);
        let heads = 2.0 * queries + 2.0 * keys + copies;
        let kept = norms + heads + inside + feed_forward + residual;

        let activation = maps * width + 2.0 * d;
        let attention = inside + 2.0 * (queries + 2.0 * keys) - feed_forward - 2.0 * d;
        let mixing = 3.0 * queries + 4.0 * keys + inside;
        Self {
            kept: tokens * kept,
            backward: tokens * activation.max(attention),
            forward: tokens * mixing.max(maps * width + d),
        }
    }
}

fn if_present(present: bool, count: f64) -> f64 {
    if present { count } else { 0.0 }
}

/// The elements per token that attention keeps in addition to its queries, keys, values and output.
fn inside_attention(model: &DecoderConfig, seq: f64) -> f64 {
    let [heads, kv_heads, head_dim] =
        [model.heads(), model.kv_heads(), model.head_dim()].map(|n| n as f64);
    match model.attention_of(0).mechanism {
        Mechanism::Softmax { .. } => heads,
        Mechanism::Linear { features, .. } => {
            let chunk = seq.min(LINEAR_ATTENTION_CHUNK as f64);
            features as f64 * (2.0 * heads + 4.0 * kv_heads)
                + chunk * (2.0 * heads + 2.0 * kv_heads)
                + 3.0 * heads * head_dim
        }
    }
}
