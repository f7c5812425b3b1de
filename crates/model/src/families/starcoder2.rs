//! StarCoder2 (Lozhkov et al. 2024, [2402.19173](https://arxiv.org/abs/2402.19173)).
//!
//! ```text
//! x = x + Wo · attention(rope(q), rope(k), v)       q, k, v = W · ln₁(x); grouped queries, a window of 4096 tokens
//! x = x + W₂ · gelu(W₁ · ln₂(x))                    GELU by tanh
//! logits = E · ln_f(x)                              LayerNorm, ε 1e-5; biases in the blocks; tied
//! ```

use super::llama::{self, ATTENTION, read_common, write_common};
use super::prelude::*;
use crate::weights::names::{TensorName, as_is, linear};

/// Default sizes of the model type: those of the 3B model, except for the context.
const THREE: Sizes = sizes! { vocab_size 49_152, seq_len 4096, d_model 3072, n_layers 30, heads 24, kv_heads 2, width 12_288 };

pub(super) fn presets() -> Vec<Preset> {
    let seven = sizes! { d_model 4608, n_layers 32, heads 36, kv_heads 4, width 18_432; ..THREE };
    let model = |sizes: Sizes, base| ModelConfig {
        attention: AttentionKind::windowed(Window::new(4096)),
        position: rotary(None, base, RotaryLayout::HalfSplit),
        seq_len: 16_384,
        feed_forward: FeedForward::dense(Activation::GeluTanh).with_expansion(sizes.expansion()),
        init: normal(INITIALIZER_RANGE),
        ..of_type(sizes.config(Family::Starcoder2), true, 1e-5, true)
    };
    presets! {
        "starcoder2-3b", "StarCoder2, 3B parameters, tied" => model(THREE, 999_999.442_035_881_3);
        "starcoder2-7b", "StarCoder2, 7B parameters, tied" => model(seven, 1_000_000.0);
    }
}

const INITIALIZER_RANGE: f64 = 0.018_042;

fn of_type(raw: ModelConfig, biased: bool, epsilon: f64, tied: bool) -> ModelConfig {
    ModelConfig {
        bias: Biases::all(biased),
        norm: layer_norm(epsilon),
        head: head(tied),
        ..raw
    }
}

pub(super) const EXCHANGE: Option<Exchange> = Some(Exchange {
    further_blocks: false,
    within: &[],
    complete: complete_norms,
    ..llama::exchange("starcoder2", "Starcoder2ForCausalLM", read, write)
});

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    let raw = read_common(fields, Family::Starcoder2, THREE, None)?;
    let window = fields.optional_size("sliding_window")?;
    let width = fields.size("intermediate_size", THREE.width)?;
    let activation = activation(fields, "hidden_act", Activation::GeluTanh)?;
    let raw = ModelConfig {
        attention: layers::attention(window.map(Window::new)),
        feed_forward: FeedForward::dense(activation).with_width(width),
        init: normal(fields.number("initializer_range", INITIALIZER_RANGE)?),
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
    let activation = pytorch_activation_name(config.activation());
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    set("hidden_act", json!(activation));
    set("norm_epsilon", json!(config.norm_epsilon()));
    set("use_bias", json!(config.bias().qkv));
    layers::write_window(config, &mut fields);
    fields
}

/// Tensor names of Hugging Face checkpoints: the norms have biases.
pub(super) const NAMES: Names<'static> = Names {
    model: &[
        as_is("tokens", "model.embed_tokens.weight"),
        as_is("norm_final", "model.norm"),
        as_is("head", "lm_head.weight"),
    ],
    ..llama::names(&[BLOCK, ATTENTION])
};

const BLOCK: &[TensorName] = &[
    as_is("norm1", "input_layernorm"),
    as_is("norm2", "post_attention_layernorm"),
    linear("feed_forward.up", "mlp.c_fc"),
    linear("feed_forward.down", "mlp.c_proj"),
];
