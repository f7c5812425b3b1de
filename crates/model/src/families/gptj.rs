//! GPT-J (Wang and Komatsuzaki 2021).
//!
//! ```text
//! h = ln(x)                                         LayerNorm, ε 1e-5, one for both branches
//! x = x + Wo · attention(rope(q), rope(k), v) + W₂ · gelu(W₁ · h)      GELU by tanh
//! q, k, v = W · h                                   rotates the first 64 of 256 elements of a head, interleaved layout
//! logits = H · ln_f(x) + b                          biases only in the feed-forward layer and the untied head
//! ```

use super::gpt2::{self, read_common, read_sizes};
use super::prelude::*;
use crate::weights::names::{as_is, linear, query_key_value};

pub(super) fn presets() -> Vec<Preset> {
    let config = ModelConfig {
        vocab_size: Some(50_400),
        ..sized(2048, 4096, 28, 16, 64)
    };
    presets! {
        "gptj-6b", "GPT-J, 6B parameters" => config;
    }
}

fn sized(
    seq_len: usize,
    d_model: usize,
    n_layers: usize,
    heads: usize,
    rotary_dims: usize,
) -> ModelConfig {
    ModelConfig {
        seq_len,
        d_model,
        n_layers,
        heads,
        bias: Biases {
            feed_forward: true,
            ..Biases::all(false)
        },
        norm: layer_norm(1e-5),
        position: rotary(Some(rotary_dims), 10_000.0, RotaryLayout::Interleaved),
        feed_forward: FeedForward::dense(Activation::GeluTanh),
        wiring: Wiring::Parallel { shared_norm: true },
        head: Head {
            bias: true,
            ..common(Family::Gptj).head
        },
        ..common(Family::Gptj)
    }
}

pub(super) const EXCHANGE: Option<Exchange> = Some(Exchange {
    further_blocks: false,
    within: &[],
    model_type: "gptj",
    architecture: "GPTJForCausalLM",
    prefix: "transformer.",
    embedding: "transformer.wte.weight",
    head: "lm_head.weight",
    constant: |name| {
        let constants = [".attn.bias", ".attn.masked_bias", ".attn.embed_positions"];
        constants.iter().any(|end| name.ends_with(end))
    },
    read,
    write,
    complete: |raw| {
        raw.bias.feed_forward = true;
        raw.head.bias = true;
        complete_norms(raw);
    },
});

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    fields.only(
        "rotary",
        true,
        "GPT-J without rotary positions is not computed",
    )?;
    if fields.has("rotary_dim") && fields.optional_size("rotary_dim")?.is_none() {
        return Err(fields.error("rotary_dim", "must be a whole number"));
    }
    let rotary_dims = fields.size("rotary_dim", 64)?;
    let [seq_len, d_model, n_layers, heads] = read_sizes(fields, [2048, 4096, 28, 16])?;
    let raw = ModelConfig {
        vocab_size: Some(50_400),
        ..sized(seq_len, d_model, n_layers, heads, rotary_dims)
    };
    read_common(fields, raw)
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = gpt2::write(config);
    if let Some(rotary) = config.rotary()
        && rotary.scaling == RotaryScaling::None
    {
        fields.insert("rotary_dim".to_owned(), json!(rotary.dims));
    }
    fields
}

/// Tensor names of Hugging Face checkpoints.
pub(super) const NAMES: Names<'static> = Names {
    model: &[
        as_is("tokens", "transformer.wte.weight"),
        as_is("norm_final", "transformer.ln_f"),
        as_is("head", "lm_head.weight"),
        as_is("head_bias", "lm_head.bias"),
    ],
    block: "transformer.h.*",
    blocks: &[&[
        as_is("norm1", "ln_1"),
        query_key_value(
            "attention.qkv.weight",
            [
                "attn.q_proj.weight",
                "attn.k_proj.weight",
                "attn.v_proj.weight",
            ],
        ),
        linear("attention.out.weight", "attn.out_proj.weight"),
        linear("feed_forward.up", "mlp.fc_in"),
        linear("feed_forward.down", "mlp.fc_out"),
    ]],
};
