//! What one block keeps for its gradients, and what its way back makes besides.
//!
//! Elements per token, with `d` the width, `q` and `k` the query and key heads' widths together, `F` the feed-forward
//! part's width, `g` 1 where the norm has a gain, `[dropout]` where it acts there:
//!
//! ```text
//! norms                  4d + 2gd       each: its input, its output before the gain (g), its output, which the map keeps
//!                        3d + 2gd       with parallel wiring: one input for both
//! attention              q + 2k         queries, keys and values, each its own copy
//!                        (q + k)(1 + g) their norms, where they have them
//!                        heads · seq    the softmax's weights; as much again: [dropout]'s factors
//!                        q              the output, which the next map keeps
//! feed-forward           2F             before and after the activation, the latter kept by the next map
//!                        4F             gated: both maps' outputs, the activation's, the product
//!                        F              [dropout]'s mask
//! residual               2d             [dropout]'s masks
//! ```
//!
//! Linear attention keeps, in the place of the weights, `f (2 heads + 4 kv_heads)` for `f` features, `c (2 heads +
//! 2 kv_heads)` for chunks of `c` tokens, and `3q`: its plain operations' inputs.
//!
//! On the way back the block's parts are freed one after the other. Either the activation's gradient makes the most, a few
//! buffers of `F` while all is still kept, or the attention's, two or three of `heads · seq`, the feed-forward part's
//! being gone.

use emberlm_kernels::LINEAR_ATTENTION_CHUNK;
use emberlm_model::config::{AttentionKind, DropoutSite, FeedForward, Norm, Wiring};
use emberlm_model::{Activation, DecoderConfig};

/// Elements of a micro-batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// Kept from the forward pass on.
    pub kept: f64,
    /// The most that the way back makes, less what is freed until then.
    pub back: f64,
}

impl Block {
    /// Of `tokens` tokens in sequences of `seq`.
    pub fn of(model: &DecoderConfig, tokens: f64, seq: f64) -> Self {
        let wide = |n: usize| n as f64;
        let d = wide(model.d_model);
        let queries = wide(model.heads * model.head_dim);
        let keys = wide(model.kv_heads * model.head_dim);
        let width = wide(model.feed_forward_width());
        let gain = where_there(has_gain(model), 1.0);
        let dropped = |site| model.dropout_at(site) > 0.0;

        let norms = match model.wiring {
            Wiring::PreNorm | Wiring::PostNorm => 4.0 + 2.0 * gain,
            Wiring::Parallel { .. } => 3.0 + 2.0 * gain,
        } * d;
        let head_norms = where_there(model.qk_norm, (queries + keys) * (1.0 + gain));
        let weights = attention_weights(model, seq);
        let factors = where_there(dropped(DropoutSite::Attention), weights);
        let feed_forward = match model.feed_forward {
            FeedForward::Dense { .. } => 2.0,
            FeedForward::Gated { .. } => 4.0,
        } * width
            + where_there(dropped(DropoutSite::Hidden), width);
        let residual = where_there(dropped(DropoutSite::Residual), 2.0 * d);
        let heads = 2.0 * queries + 2.0 * keys + head_norms;
        let kept = norms + heads + weights + factors + feed_forward + residual;

        let activation = buffers(model.activation()) * width + 2.0 * d;
        let attention =
            2.0 * weights + factors + 2.0 * (queries + 2.0 * keys) - feed_forward - 2.0 * d;
        Self {
            kept: tokens * kept,
            back: tokens * activation.max(attention),
        }
    }
}

/// Whether the norms have a gain, for whose gradient they keep their output.
pub(super) fn has_gain(model: &DecoderConfig) -> bool {
    !matches!(model.norm, Norm::UnitRms { .. })
}

fn where_there(there: bool, count: f64) -> f64 {
    if there { count } else { 0.0 }
}

/// The softmax's weights of one token, or what linear attention keeps of it.
fn attention_weights(model: &DecoderConfig, seq: f64) -> f64 {
    let [heads, kv_heads, head_dim] =
        [model.heads, model.kv_heads, model.head_dim].map(|n| n as f64);
    match model.attention {
        AttentionKind::Softmax => heads * seq,
        AttentionKind::Linear { features, .. } => {
            let chunk = seq.min(LINEAR_ATTENTION_CHUNK as f64);
            features as f64 * (2.0 * heads + 4.0 * kv_heads)
                + chunk * (2.0 * heads + 2.0 * kv_heads)
                + 3.0 * heads * head_dim
        }
    }
}

/// Buffers that an activation's gradient makes, the output's gradient among them: see
/// `emberlm_kernels::reference::activation_backward`.
fn buffers(activation: Activation) -> f64 {
    match activation {
        Activation::Relu | Activation::ReluSquared => 2.0,
        Activation::Gelu | Activation::Silu => 4.0,
        Activation::GeluTanh => 5.0,
    }
}
