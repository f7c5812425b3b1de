//! GPT-2 (Radford et al. 2019) as nanoGPT has it.
//!
//! ```text
//! x = E[token] + P[position]
//! x = x + Wo · attention(W · ln₁(x))                ln: LayerNorm, ε 1e-5, with a bias or without
//! x = x + W₂ · gelu(W₁ · ln₂(x))
//! logits = E · ln_f(x)                              tied to the embedding
//! ```
//!
//! GELU is the error function's, as in nanoGPT; OpenAI's own weights were trained with its tanh approximation, which is
//! `model.feed_forward.activation = "gelu_tanh"`.

use emberlm_kernels::Activation;

use super::{Family, Preset};
use crate::checked::DecoderConfig;
use crate::config::{
    AttentionKind, Biases, DropoutSite, FeedForward, Head, Init, ModelConfig, Norm, Position,
    Wiring,
};
use crate::weights::map::{Source, block_path};

pub(super) fn presets() -> Vec<Preset> {
    let gpt2 = |d_model, n_layers, heads| ModelConfig {
        vocab_size: 50_257,
        ..sized(1024, d_model, n_layers, heads, true)
    };
    let named = |name, about, config| Preset {
        name,
        about,
        config,
    };
    vec![
        named(
            "char-nano",
            "nanoGPT's CPU model for characters: 4 layers of width 128, no biases",
            sized(64, 128, 4, 4, false),
        ),
        named("gpt2", "GPT-2 small, 124M parameters", gpt2(768, 12, 12)),
        named(
            "gpt2-medium",
            "GPT-2 medium, 355M parameters",
            gpt2(1024, 24, 16),
        ),
        named(
            "gpt2-large",
            "GPT-2 large, 774M parameters",
            gpt2(1280, 36, 20),
        ),
        named("gpt2-xl", "GPT-2 XL, 1.5B parameters", gpt2(1600, 48, 25)),
    ]
}

fn sized(seq_len: usize, d_model: usize, n_layers: usize, heads: usize, bias: bool) -> ModelConfig {
    ModelConfig {
        family: Family::Gpt2,
        vocab_size: 0,
        seq_len,
        d_model,
        n_layers,
        heads,
        kv_heads: heads,
        head_dim: 0,
        window: 0,
        global_tokens: 0,
        attention: AttentionKind::Softmax,
        qk_norm: false,
        dropout: 0.0,
        dropout_sites: vec![
            DropoutSite::Embedding,
            DropoutSite::Attention,
            DropoutSite::Residual,
        ],
        norm_embedding: false,
        bias: Biases::all(bias),
        norm: Norm::Layer {
            bias,
            epsilon: 1e-5,
        },
        position: Position::Learned,
        feed_forward: FeedForward::Dense {
            activation: Activation::Gelu,
            width: 0,
        },
        wiring: Wiring::PreNorm,
        head: Head {
            tied: true,
            bias: false,
            soft_cap: 0.0,
        },
        init: Init::Normal {
            std: 0.02,
            scale_residual: true,
        },
    }
}

/// The names of nanoGPT's `state_dict`.
pub(super) fn source(_config: &DecoderConfig, path: &str) -> Option<Source> {
    let Some((layer, rest)) = block_path(path) else {
        return match path {
            "tokens" => Some(Source::as_is("transformer.wte.weight")),
            "positions.weight" => Some(Source::as_is("transformer.wpe.weight")),
            "norm_final.gain" => Some(Source::as_is("transformer.ln_f.weight")),
            "norm_final.bias" => Some(Source::as_is("transformer.ln_f.bias")),
            _ => None,
        };
    };
    let at = |name: &str| format!("transformer.h.{layer}.{name}");
    match rest {
        "norm1.gain" => Some(Source::as_is(at("ln_1.weight"))),
        "norm1.bias" => Some(Source::as_is(at("ln_1.bias"))),
        "norm2.gain" => Some(Source::as_is(at("ln_2.weight"))),
        "norm2.bias" => Some(Source::as_is(at("ln_2.bias"))),
        "attention.qkv.weight" => Some(Source::transposed(at("attn.c_attn.weight"))),
        "attention.qkv.bias" => Some(Source::as_is(at("attn.c_attn.bias"))),
        "attention.out.weight" => Some(Source::transposed(at("attn.c_proj.weight"))),
        "attention.out.bias" => Some(Source::as_is(at("attn.c_proj.bias"))),
        "feed_forward.up.weight" => Some(Source::transposed(at("mlp.c_fc.weight"))),
        "feed_forward.up.bias" => Some(Source::as_is(at("mlp.c_fc.bias"))),
        "feed_forward.down.weight" => Some(Source::transposed(at("mlp.c_proj.weight"))),
        "feed_forward.down.bias" => Some(Source::as_is(at("mlp.c_proj.bias"))),
        _ => None,
    }
}
