//! The memory that one block keeps for its gradients, and the memory of its backward pass.
//!
//! Elements per token, with `d` the width, `q` and `k` the query and key heads' widths together, `F` the feed-forward
//! part's width, `[dropout]` where it acts there:
//!
//! ```text
//! norms                  4d             each: its input, its output, which the map keeps
//!                        3d             with parallel wiring: one input for both
//!                        8d             in a sandwich: two more norms
//! attention              q + 2k         the fused map's output, turned in place
//!                        q + k          with norms of queries and keys: what comes of them
//!                        heads          the logarithm of the sum of each query's weights
//!                        q              the output, which the next map keeps
//! feed-forward           2F             before and after the activation, the latter kept by the next map
//!                        3F             gated: both maps' outputs, the product
//!                        F              [dropout]'s mask
//! residual               2d             [dropout]'s masks
//! ```
//!
//! Linear attention also keeps `q + k` (copies) and `f (2 heads + 4 kv_heads)` for `f` features, `c (2 heads +
//! 2 kv_heads)` for chunks of `c` tokens, and `3q`: its plain operations' inputs.
//!
//! The backward pass frees the block's parts one after the other. Either the activation's gradient makes the most, two or
//! three buffers of `F` while all is still kept, or the attention's, the feed-forward part's being gone.

use emberlm_kernels::LINEAR_ATTENTION_CHUNK;
use emberlm_model::DecoderConfig;
use emberlm_model::config::{DropoutSite, FeedForwardKind, Wiring};
use emberlm_model::nn::Mechanism;

/// Elements of a micro-batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// Kept from the forward pass on.
    pub kept: f64,
    /// The peak of the backward pass's buffers, minus the memory freed until then.
    pub back: f64,
    /// The most that a forward pass makes where nothing is kept for gradients.
    pub forward: f64,
}

impl Block {
    /// Of `tokens` tokens in sequences of `seq`.
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
        let copies = where_there(separate, queries + keys);
        let inside = inside_attention(model, seq);
        let maps = match model.feed_forward().kind {
            FeedForwardKind::Dense => 2.0,
            FeedForwardKind::Gated => 3.0,
        };
        let feed_forward = maps * width + where_there(dropped(DropoutSite::Hidden), width);
        let residual = where_there(dropped(DropoutSite::Residual), 2.0 * d);
        let heads = 2.0 * queries + 2.0 * keys + copies;
        let kept = norms + heads + inside + feed_forward + residual;

        let activation = maps * width + 2.0 * d;
        let attention = inside + 2.0 * (queries + 2.0 * keys) - feed_forward - 2.0 * d;
        let mixing = 3.0 * queries + 4.0 * keys + inside;
        Self {
            kept: tokens * kept,
            back: tokens * activation.max(attention),
            forward: tokens * mixing.max(maps * width + d),
        }
    }
}

fn where_there(there: bool, count: f64) -> f64 {
    if there { count } else { 0.0 }
}

/// The elements that attention keeps per token in addition to its queries, keys, values and output.
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
