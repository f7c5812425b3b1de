//! How large a model is: parameters, operations and memory, from the configuration alone.
//!
//! A configuration can be legal and beyond any machine. Counting is done in 128 bits, which the product of the largest
//! legal sizes does not fill, and a result beyond `usize` is its greatest number.

use serde::Serialize;

use crate::checked::DecoderConfig;
use crate::config::{FeedForward, Norm, Position, Wiring};

/// Parameters by part. A tied head counts 0: it is the embedding's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Parameters {
    /// All of them.
    pub total: usize,
    /// The token embedding.
    pub embedding: usize,
    /// The learned positions.
    pub positions: usize,
    /// The attentions' maps with their biases.
    pub attention: usize,
    /// The feed-forward parts' maps with their biases.
    pub feed_forward: usize,
    /// Gains and biases of all norms.
    pub norms: usize,
    /// The untied head, with its bias.
    pub head: usize,
}

/// Floating-point operations per token at the full sequence length, a multiplication and an addition being two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Flops {
    /// One forward pass: 2 per weight of each map and of the head, and `4 · heads · head_dim · seq_len` per block for
    /// the attention's two products, counted over the full square as is the custom (Chowdhery et al. 2022).
    pub forward: usize,
    /// Forward and backward: three times the forward pass.
    pub training: usize,
}

/// Bytes in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// The weights.
    pub weights: usize,
    /// Weights, gradients and AdamW's two moments; activations come on top.
    pub training_state: usize,
    /// Keys and values of one sequence of the full length.
    pub kv_cache: usize,
}

/// The sizes that are multiplied.
struct Sizes {
    vocab: u128,
    seq_len: u128,
    d_model: u128,
    layers: u128,
    head_dim: u128,
    /// All query heads together.
    mixed: u128,
    /// Queries, keys and values together.
    qkv: u128,
    /// Keys of all key-value heads together.
    keys: u128,
    width: u128,
}

impl Sizes {
    fn of(config: &DecoderConfig) -> Self {
        let wide = |size: usize| size as u128;
        let [heads, kv_heads, head_dim] =
            [config.heads, config.kv_heads, config.head_dim].map(wide);
        Self {
            vocab: wide(config.vocab_size),
            seq_len: wide(config.seq_len),
            d_model: wide(config.d_model),
            layers: wide(config.n_layers),
            head_dim,
            mixed: heads * head_dim,
            qkv: (heads + 2 * kv_heads) * head_dim,
            keys: kv_heads * head_dim,
            width: wide(config.feed_forward_width()),
        }
    }
}

fn narrow(count: u128) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// `count` where `there`, else 0.
fn where_there(there: bool, count: u128) -> u128 {
    if there { count } else { 0 }
}

/// Counts a model's parameters.
pub fn parameters(config: &DecoderConfig) -> Parameters {
    let sizes = Sizes::of(config);
    let embedding = sizes.vocab * sizes.d_model;
    let learned = config.position == Position::Learned;
    let positions = where_there(learned, sizes.seq_len * sizes.d_model);
    let attention = sizes.layers * attention_parameters(config, &sizes);
    let feed_forward = sizes.layers * feed_forward_parameters(config, &sizes);
    let norms = norm_parameters(config, &sizes);
    let head =
        where_there(!config.head.tied, embedding) + where_there(config.head.bias, sizes.vocab);
    let total = embedding + positions + attention + feed_forward + norms + head;
    Parameters {
        total: narrow(total),
        embedding: narrow(embedding),
        positions: narrow(positions),
        attention: narrow(attention),
        feed_forward: narrow(feed_forward),
        norms: narrow(norms),
        head: narrow(head),
    }
}

fn attention_parameters(config: &DecoderConfig, sizes: &Sizes) -> u128 {
    let biases = where_there(config.bias.qkv, sizes.qkv)
        + where_there(config.bias.attention_out, sizes.d_model);
    sizes.d_model * sizes.qkv + sizes.mixed * sizes.d_model + biases
}

fn feed_forward_parameters(config: &DecoderConfig, sizes: &Sizes) -> u128 {
    let into = match config.feed_forward {
        FeedForward::Dense { .. } => 1,
        FeedForward::Gated { .. } => 2,
    };
    let biases = where_there(config.bias.feed_forward, into * sizes.width + sizes.d_model);
    (into + 1) * sizes.d_model * sizes.width + biases
}

fn norm_parameters(config: &DecoderConfig, sizes: &Sizes) -> u128 {
    let vectors = match config.norm {
        Norm::Layer { bias: true, .. } => 2,
        Norm::Layer { bias: false, .. } | Norm::Rms { .. } => 1,
        Norm::UnitRms { .. } => 0,
    };
    let per_block = match config.wiring {
        Wiring::Parallel { shared_norm: true } => 1,
        Wiring::PreNorm | Wiring::PostNorm | Wiring::Parallel { .. } => 2,
    };
    let whole = sizes.layers * per_block + 1 + where_there(config.norm_embedding, 1);
    let heads = where_there(config.qk_norm, 2 * sizes.layers);
    vectors * (whole * sizes.d_model + heads * sizes.head_dim)
}

/// Counts a model's operations per token.
pub fn flops_per_token(config: &DecoderConfig) -> Flops {
    let sizes = Sizes::of(config);
    let feed_forward_maps = match config.feed_forward {
        FeedForward::Dense { .. } => 2,
        FeedForward::Gated { .. } => 3,
    };
    let weights_per_block =
        sizes.d_model * (sizes.qkv + sizes.mixed + feed_forward_maps * sizes.width);
    let products = 2 * (sizes.layers * weights_per_block + sizes.vocab * sizes.d_model);
    let forward = products + sizes.layers * 4 * sizes.mixed * sizes.seq_len;
    Flops {
        forward: narrow(forward),
        training: narrow(3 * forward),
    }
}

/// Counts a model's memory.
pub fn memory(config: &DecoderConfig) -> Memory {
    let sizes = Sizes::of(config);
    let weights = 4 * parameters(config).total as u128;
    let kv_elements = 2 * sizes.layers * sizes.keys * sizes.seq_len;
    Memory {
        weights: narrow(weights),
        training_state: narrow(4 * weights),
        kv_cache: narrow(4 * kv_elements),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families;

    fn preset(name: &str) -> DecoderConfig {
        let config = families::preset(name).expect("a preset").config;
        DecoderConfig::try_from(config).expect("legal")
    }

    // Published: the count for PocketTransformer; Hugging Face's `num_parameters()` for the four GPT-2s.
    #[test]
    fn published_counts() {
        assert_eq!(parameters(&preset("pocket")).total, 48_034_560);
        assert_eq!(parameters(&preset("gpt2")).total, 124_439_808);
        assert_eq!(parameters(&preset("gpt2-medium")).total, 354_823_168);
        assert_eq!(parameters(&preset("gpt2-large")).total, 774_030_080);
        assert_eq!(parameters(&preset("gpt2-xl")).total, 1_557_611_200);
    }

    // By hand: 2 · (12 · 12 · 768² + 50257 · 768) + 12 · 4 · 768 · 1024.
    #[test]
    fn operations_of_gpt2() {
        let flops = flops_per_token(&preset("gpt2"));
        assert_eq!(
            flops.forward,
            2 * (144 * 589_824 + 50_257 * 768) + 48 * 786_432
        );
        assert_eq!(flops.training, 3 * flops.forward);
    }

    // The greatest of every size: what does not fit is the greatest number there is, what does is exact.
    #[test]
    fn sizes_beyond_any_machine_are_counted_without_overflow() {
        const MOST: usize = 1 << 24;
        let mut raw = families::preset("gpt2").expect("a preset").config;
        raw.vocab_size = MOST;
        raw.seq_len = MOST;
        raw.d_model = MOST;
        raw.n_layers = MOST;
        raw.heads = MOST;
        raw.kv_heads = MOST;
        raw.head_dim = MOST;
        raw.feed_forward = FeedForward::Gated {
            activation: crate::Activation::Silu,
            width: MOST,
        };
        raw.qk_norm = true;
        let config = DecoderConfig::try_from(raw).expect("legal");
        let counted = parameters(&config);
        assert_eq!(counted.total, usize::MAX);
        assert_eq!(counted.attention, usize::MAX);
        assert_eq!(counted.embedding, 1 << 48);
        // Gain and bias of two norms a block and the last, and of each block's query and key norms.
        assert_eq!(counted.norms, 2 * ((1 << 49) + (1 << 24) + (1 << 49)));
        assert_eq!(flops_per_token(&config).training, usize::MAX);
        let memory = memory(&config);
        assert_eq!(memory.training_state, usize::MAX);
        assert_eq!(memory.kv_cache, usize::MAX);
    }
}
