//! StarCoder2 (Lozhkov et al. 2024, [2402.19173](https://arxiv.org/abs/2402.19173)).
//!
//! ```text
//! x = x + Wo · attention(rope(q), rope(k), v)       q, k, v = W · ln₁(x); grouped queries, a window of 4096 tokens
//! x = x + W₂ · gelu(W₁ · ln₂(x))                    GELU by tanh
//! logits = E · ln_f(x)                              LayerNorm, ε 1e-5; biases in the blocks; tied
//! ```

use emberlm_kernels::{Activation, RotaryLayout};
use serde_json::{Map, Value, json};

use super::llama::{self, Sizes, read_common, write_common};
use super::{Definition, Family, Preset, common, rotary};
use crate::config::{AttentionKind, Biases, FeedForward, Head, Init, ModelConfig, Norm, Window};
use crate::error::HuggingFaceError;
use crate::exchange::fields::Fields;
use crate::exchange::names::{activation, activation_name};
use crate::exchange::{Exchange, layers};
use crate::transformer::checked::TransformerConfig;
use crate::weights::names::{TensorName, as_is, linear, query_key_value};

pub(super) const DEFINITION: Definition = Definition {
    name: "starcoder2",
    presets,
    names: NAMES,
    exchange: Some(exchange),
};

/// Default sizes of the model type: those of the 3B model, except for the context.
const THREE: Sizes = Sizes {
    vocab_size: 49_152,
    seq_len: 4096,
    d_model: 3072,
    n_layers: 30,
    heads: 24,
    kv_heads: 2,
    width: 12_288,
};

fn presets() -> Vec<Preset> {
    let seven = Sizes {
        d_model: 4608,
        n_layers: 32,
        heads: 36,
        kv_heads: 4,
        width: 18_432,
        ..THREE
    };
    let model = |sizes: Sizes, base| ModelConfig {
        attention: AttentionKind::windowed(Window::new(4096)),
        position: rotary(None, base, RotaryLayout::HalfSplit),
        seq_len: 16_384,
        feed_forward: FeedForward::dense(Activation::GeluTanh).with_expansion(sizes.expansion()),
        init: Init::Normal {
            std: INITIALIZER_RANGE,
            scale_residual: false,
        },
        ..of_type(sizes.config(Family::Starcoder2), true, 1e-5, true)
    };
    vec![
        Preset::new(
            "starcoder2-3b",
            "StarCoder2, 3B parameters, tied",
            model(THREE, 999_999.442_035_881_3),
        ),
        Preset::new(
            "starcoder2-7b",
            "StarCoder2, 7B parameters, tied",
            model(seven, 1_000_000.0),
        ),
    ]
}

const INITIALIZER_RANGE: f64 = 0.018_042;

fn of_type(raw: ModelConfig, biased: bool, epsilon: f64, tied: bool) -> ModelConfig {
    ModelConfig {
        bias: Biases::all(biased),
        norm: Norm::Layer {
            bias: true,
            epsilon,
        },
        head: Head {
            tied,
            ..common(Family::Starcoder2).head
        },
        ..raw
    }
}

fn exchange() -> Exchange {
    Exchange {
        complete: |raw| {
            if let Norm::Layer { bias, .. } = &mut raw.norm {
                *bias = true;
            }
        },
        ..llama::exchange("starcoder2", "Starcoder2ForCausalLM", read, write)
    }
}

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    let raw = read_common(fields, Family::Starcoder2, THREE, None)?;
    let window = fields.optional_size("sliding_window")?;
    let width = fields.size("intermediate_size", THREE.width)?;
    let activation = activation(fields, "hidden_act", Activation::GeluTanh)?;
    let raw = ModelConfig {
        attention: layers::attention(window.map(Window::new)),
        feed_forward: FeedForward::dense(activation).with_width(width),
        init: Init::Normal {
            std: fields.number("initializer_range", INITIALIZER_RANGE)?,
            scale_residual: false,
        },
        ..raw
    };
    Ok(of_type(
        raw,
        fields.flag("use_bias", true)?,
        fields.number("norm_epsilon", 1e-5)?,
        fields.flag("tie_word_embeddings", true)?,
    ))
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_common(config);
    fields.remove("rms_norm_eps");
    let activation = match config.activation() {
        Activation::GeluTanh => "gelu_pytorch_tanh",
        other => activation_name(other),
    };
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    set("hidden_act", json!(activation));
    set("norm_epsilon", json!(config.norm_epsilon()));
    set("use_bias", json!(config.bias().qkv));
    let window = config.window().map(|window| window.tokens);
    set("sliding_window", json!(window));
    fields
}

/// Tensor names of Hugging Face checkpoints.
const NAMES: &[TensorName] = &[
    as_is("tokens", "model.embed_tokens.weight"),
    as_is("norm_final", "model.norm"),
    as_is("head", "lm_head.weight"),
    as_is("blocks.*.norm1", "model.layers.*.input_layernorm"),
    as_is("blocks.*.norm2", "model.layers.*.post_attention_layernorm"),
    query_key_value(
        "blocks.*.attention.qkv",
        [
            "model.layers.*.self_attn.q_proj",
            "model.layers.*.self_attn.k_proj",
            "model.layers.*.self_attn.v_proj",
        ],
    ),
    linear("blocks.*.attention.out", "model.layers.*.self_attn.o_proj"),
    linear("blocks.*.feed_forward.up", "model.layers.*.mlp.c_fc"),
    linear("blocks.*.feed_forward.down", "model.layers.*.mlp.c_proj"),
];
