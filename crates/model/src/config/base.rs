//! The configuration from which every other is made.

use emberlm_kernels::{Activation, RotaryLayout};

use crate::config::{
    Architecture, AttentionKind, Biases, DropoutSite, Family, FeedForward, Head, Init, ModelConfig,
    Norm, Position, QkNormSpan, RotaryScaling, Wiring,
};

/// Base configuration, from which each family specifies its differences: pre-norm, one key-value head per query head,
/// no biases, an untied head.
pub(crate) fn common(family: Family) -> ModelConfig {
    ModelConfig {
        family,
        vocab_size: None,
        seq_len: 1024,
        d_model: 768,
        n_layers: 12,
        heads: 12,
        kv_heads: None,
        head_dim: None,
        attention: AttentionKind::SOFTMAX,
        gated_attention: false,
        delta_nets: None,
        latent_attention: None,
        qk_norm: false,
        qk_norm_span: QkNormSpan::Head,
        dropout: 0.0,
        dropout_sites: vec![
            DropoutSite::Embedding,
            DropoutSite::Attention,
            DropoutSite::Residual,
        ],
        scale_embedding: false,
        embedding_scale: None,
        residual_scale: None,
        residual_mix: None,
        value_embeddings: None,
        norm_embedding: false,
        bias: Biases::all(false),
        norm: Norm::Rms { epsilon: 1e-5 },
        position: rotary(None, 10_000.0, RotaryLayout::HalfSplit),
        layer_positions: None,
        feed_forward: FeedForward::gated(Activation::Silu),
        experts: None,
        wiring: Wiring::PreNorm,
        head: Head {
            tied: false,
            bias: false,
            scaled: false,
            scale: None,
            soft_cap: None,
        },
        init: Init::Normal {
            std: 0.02,
            scale_residual: false,
        },
        zero_init: Vec::new(),
        architecture: Architecture::Decoder,
    }
}

/// Rotary positions without scaling.
pub(crate) fn rotary(dims: Option<usize>, base: f64, layout: RotaryLayout) -> Position {
    Position::Rotary {
        dims,
        base,
        layout,
        scaling: RotaryScaling::None,
    }
}
