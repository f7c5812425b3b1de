//! gpt-oss (OpenAI 2025, [2508.10925](https://arxiv.org/abs/2508.10925)): experts in every layer, sinks in every attention, and a
//! window in every second one.
//!
//! ```text
//! x = x + Wo · attention(rope(q), rope(k), v) + b   q, k, v = W · rms₁(x) + b; a head's weights are exp(s) / (Σ exp(s) + exp(sink))
//! x = x + Σ wₑ · expertₑ(rms₂(x))                   the 4 experts with the largest router logits R · rms₂(x) + b;
//!                                                   w is the softmax over these
//! expert(x) = W₂ · (g · σ(1.702 g) ∘ (u + 1)) + b   g = min(W₁ · x + b, 7), u = W₃ · x + b within ±7
//! logits = H · rms(x)
//! ```

use super::llama::{self, ATTENTION, NORMS, exchange, read_rotated, write_rotated};
use super::prelude::*;
use crate::weights::names::{TensorName, as_is, linear, stacked};

pub(super) const EXCHANGE: Option<Exchange> =
    Some(exchange("gpt_oss", "GptOssForCausalLM", read, write));

const SIZES: Sizes = sizes! { vocab_size 201_088, seq_len 131_072, d_model 2880, n_layers 36, heads 64, kv_heads 8, width 2880 };
const HEAD_DIM: usize = 64;
const WINDOW: usize = 128;
/// Every second layer has no window.
const FULL: FullLayers = FullLayers::Every { every: 2 };
const ROPE: RopeFields = RopeFields {
    default_base: 150_000.0,
    ..FULL_HEAD
};
/// The numbers of [`Activation::ClampedSilu`].
const ACTIVATION: [(&str, f64); 2] = [("swiglu_alpha", 1.702), ("swiglu_limit", 7.0)];
/// The scaling of a file that gives none.
const SCALING: RotaryScaling = RotaryScaling::Yarn {
    factor: 32.0,
    beta_fast: 32.0,
    beta_slow: 1.0,
    attention_factor: None,
    truncate: false,
    original_seq_len: 4096,
};

pub(super) fn presets() -> Vec<Preset> {
    let small = sizes! { n_layers 24; ..SIZES };
    presets! {
        "gpt-oss-20b", "gpt-oss, 4 of 32 experts per token" => sized(small, 32);
        "gpt-oss-120b", "gpt-oss, 4 of 128 experts per token" => sized(SIZES, 128);
    }
}

fn sized(sizes: Sizes, count: usize) -> ModelConfig {
    let window = Window {
        full_layers: FULL,
        ..Window::new(WINDOW)
    };
    ModelConfig {
        head_dim: Some(HEAD_DIM),
        bias: Biases::all(true),
        attention: attention(Some(window)),
        position: Position::Rotary {
            dims: None,
            base: ROPE.default_base,
            layout: RotaryLayout::HalfSplit,
            scaling: SCALING,
        },
        feed_forward: FeedForward::gated(Activation::ClampedSilu).with_expansion(sizes.expansion()),
        experts: Some(Experts {
            normalize: true,
            ..experts::of(count, 4, 0.001)
        }),
        ..sizes.config(Family::GptOss)
    }
}

fn attention(window: Option<Window>) -> AttentionKind {
    AttentionKind::Softmax {
        window,
        scale: None,
        soft_cap: None,
        sinks: true,
    }
}

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    for (name, value) in ACTIVATION {
        if fields.number(name, value)? != value {
            return Err(fields.error(name, format!("must be {value}: others are not computed")));
        }
    }
    let found = read_rotated(fields, Family::GptOss, SIZES, Some(HEAD_DIM), &ROPE)?;
    if found.feed_forward.activation != Activation::Silu {
        return Err(fields.error(
            "hidden_act",
            "must be silu, which names the experts' activation",
        ));
    }
    let (window, _) = layers::kinds(fields, found.n_layers, WINDOW, &FULL)?;
    let position = match found.position {
        Position::Rotary {
            dims, base, layout, ..
        } if !fields.has("rope_parameters") && !fields.has("rope_scaling") => Position::Rotary {
            dims,
            base,
            layout,
            scaling: SCALING,
        },
        given => given,
    };
    let width = found.feed_forward.width;
    Ok(ModelConfig {
        norm: Norm::Rms {
            epsilon: fields.number("rms_norm_eps", 1e-5)?,
        },
        bias: Biases {
            feed_forward: true,
            ..fields.attention_biases()?
        },
        attention: attention(window),
        position,
        feed_forward: FeedForward {
            activation: Activation::ClampedSilu,
            ..found.feed_forward
        },
        experts: Some(Experts {
            width,
            normalize: true,
            ..experts::read(fields, experts::of(128, 4, 0.001))?
        }),
        ..found
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_rotated(config, &ROPE);
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    set("hidden_act", json!("silu"));
    for (name, value) in ACTIVATION {
        set(name, json!(value));
    }
    set("attention_bias", json!(config.bias().qkv));
    layers::write_types(config, &mut fields);
    experts::write(config, "num_local_experts", &mut fields);
    fields
}

pub(super) const NAMES: Names<'static> = llama::names(&[NORMS, ATTENTION, EXPERTS]);

const EXPERTS: &[TensorName] = &[
    as_is("attention.sinks", "self_attn.sinks"),
    linear("feed_forward.router", "mlp.router"),
    stacked(
        "feed_forward.experts.*.gate",
        "mlp.experts.gate_up_proj",
        [0, 2],
    ),
    stacked(
        "feed_forward.experts.*.up",
        "mlp.experts.gate_up_proj",
        [1, 2],
    ),
    stacked(
        "feed_forward.experts.*.down",
        "mlp.experts.down_proj",
        [0, 1],
    ),
];
