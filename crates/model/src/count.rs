//! How large a model is: parameters, operations and memory, from the configuration alone.

use emberlm_kernels::LINEAR_ATTENTION_CHUNK;
use serde::Serialize;

use crate::checked::DecoderConfig;
use crate::config::{AttentionKind, FeedForward, Norm, Position, Wiring};

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
    /// the attention's two products, counted over the full square as is the custom (Chowdhery et al. 2022). Linear
    /// attention's are those of its features, its sums and the squares of its chunks instead.
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
    /// What decoding keeps of one sequence of the full length: keys and values, or linear attention's sums.
    pub kv_cache: usize,
}

/// Counts a model's parameters.
pub fn parameters(config: &DecoderConfig) -> Parameters {
    let (d, layers) = (config.d_model, config.n_layers);
    let embedding = config.vocab_size * d;
    let positions = match config.position {
        Position::Learned => config.seq_len * d,
        Position::Sinusoidal | Position::Rotary { .. } | Position::None => 0,
    };
    let attention = layers * attention_parameters(config);
    let feed_forward = layers * feed_forward_parameters(config);
    let norms = norm_parameters(config);
    let head = if config.head.tied { 0 } else { embedding }
        + if config.head.bias {
            config.vocab_size
        } else {
            0
        };
    Parameters {
        total: embedding + positions + attention + feed_forward + norms + head,
        embedding,
        positions,
        attention,
        feed_forward,
        norms,
        head,
    }
}

fn qkv_width(config: &DecoderConfig) -> usize {
    (config.heads + 2 * config.kv_heads) * config.head_dim
}

fn attention_parameters(config: &DecoderConfig) -> usize {
    let (d, mixed) = (config.d_model, config.heads * config.head_dim);
    let biases = if config.bias.qkv {
        qkv_width(config)
    } else {
        0
    } + if config.bias.attention_out { d } else { 0 };
    d * qkv_width(config) + mixed * d + biases
}

fn feed_forward_parameters(config: &DecoderConfig) -> usize {
    let (d, width) = (config.d_model, config.feed_forward_width());
    let into = match config.feed_forward {
        FeedForward::Dense { .. } => 1,
        FeedForward::Gated { .. } => 2,
    };
    let biases = if config.bias.feed_forward {
        into * width + d
    } else {
        0
    };
    (into + 1) * d * width + biases
}

fn norm_parameters(config: &DecoderConfig) -> usize {
    let vectors = match config.norm {
        Norm::Layer { bias: true, .. } => 2,
        Norm::Layer { bias: false, .. } | Norm::Rms { .. } => 1,
        Norm::UnitRms { .. } => 0,
    };
    let per_block = match config.wiring {
        Wiring::Parallel { shared_norm: true } => 1,
        Wiring::PreNorm | Wiring::PostNorm | Wiring::Parallel { .. } => 2,
    };
    let whole = config.n_layers * per_block + 1 + usize::from(config.norm_embedding);
    let heads = if config.qk_norm {
        2 * config.n_layers
    } else {
        0
    };
    vectors * (whole * config.d_model + heads * config.head_dim)
}

/// Counts a model's operations per token.
pub fn flops_per_token(config: &DecoderConfig) -> Flops {
    let d = config.d_model;
    let mixed = config.heads * config.head_dim;
    let feed_forward_maps = match config.feed_forward {
        FeedForward::Dense { .. } => 2,
        FeedForward::Gated { .. } => 3,
    };
    let weights_per_block =
        d * qkv_width(config) + mixed * d + feed_forward_maps * d * config.feed_forward_width();
    let products = 2 * (config.n_layers * weights_per_block + config.vocab_size * d);
    let forward = products + config.n_layers * attention_products(config);
    Flops {
        forward,
        training: 3 * forward,
    }
}

/// Operations per token of what one block's attention multiplies besides its maps.
fn attention_products(config: &DecoderConfig) -> usize {
    let (heads, kv_heads, head_dim) = (config.heads, config.kv_heads, config.head_dim);
    match config.attention {
        AttentionKind::Softmax => 4 * heads * head_dim * config.seq_len,
        AttentionKind::Linear { features, .. } => {
            // Values carry a column of ones.
            let (chunk, value) = (LINEAR_ATTENTION_CHUNK.min(config.seq_len), head_dim + 1);
            let per_query = features * head_dim + chunk * (features + value) + features * value;
            let per_key = features * head_dim + features * value;
            2 * (heads * per_query + kv_heads * per_key)
        }
    }
}

/// Elements that one block keeps of a sequence of the full length while decoding.
fn cached_elements(config: &DecoderConfig) -> usize {
    let per_head = match config.attention {
        AttentionKind::Softmax => 2 * config.head_dim * config.seq_len,
        AttentionKind::Linear { features, .. } => features * (config.head_dim + 1) + 1,
    };
    config.kv_heads * per_head
}

/// Counts a model's memory.
pub fn memory(config: &DecoderConfig) -> Memory {
    let weights = 4 * parameters(config).total;
    Memory {
        weights,
        training_state: 4 * weights,
        kv_cache: 4 * config.n_layers * cached_elements(config),
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

    // By hand, of 64 features in 12 heads of 64, chunks of 64: 2 · 12 · (64·64 + 64·(64 + 65) + 64·65) per token for the
    // queries, 2 · 12 · (64·64 + 64·65) for the keys; 64 · 65 + 1 numbers per head kept, whatever the length.
    #[test]
    fn linear_attention_does_not_grow_with_the_sequence() {
        let linear = |seq_len| {
            let mut raw = preset("gpt2").raw().clone();
            raw.attention = AttentionKind::Linear {
                features: 64,
                seed: 0,
            };
            raw.seq_len = seq_len;
            DecoderConfig::try_from(raw).expect("legal")
        };
        let products = 2 * 12 * (4096 + 64 * 129 + 4160) + 2 * 12 * (4096 + 4160);
        let forward = 2 * (144 * 589_824 + 50_257 * 768) + 12 * products;
        for seq_len in [1024, 8192] {
            assert_eq!(flops_per_token(&linear(seq_len)).forward, forward);
            assert_eq!(memory(&linear(seq_len)).kv_cache, 4 * 12 * 12 * 4161);
        }
        let softmax = preset("gpt2");
        assert_eq!(memory(&softmax).kv_cache, 4 * 12 * 2 * 12 * 64 * 1024);
    }
}
