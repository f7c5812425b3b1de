//! Gemma 2 (Gemma Team 2024, [2408.00118](https://arxiv.org/abs/2408.00118)).
//!
//! ```text
//! x = √d_model · E[token]
//! x = x + rms₂(Wo · attention(rope(q), rope(k), v))         q, k, v = W · rms₁(x)
//! x = x + rms₄(W₂ · (gelu(W₁ · rms₃(x)) ∘ W₃ · rms₃(x)))    GELU by tanh
//! logits = 30 · tanh(E · rms(x) / 30)                       tied to the embedding; no biases; ε 1e-6
//! ```
//!
//! The gain of each RMSNorm is `1 + w`. Scores are `50 · tanh(q kᵀ / (50 √s))`, where `s` is `query_pre_attn_scalar`.
//! Even layers, counted from 0, attend to a window of 4096 tokens.

use super::llama::{self, ATTENTION, GATED, QK_NORMS, read_common, write_common};
use super::prelude::*;
use crate::weights::names::{TensorName, as_is};

pub(super) const EXCHANGE: Option<Exchange> =
    Some(llama::exchange("gemma2", "Gemma2ForCausalLM", read, write));

/// Sizes of the 2B model, which are also the defaults of the Hugging Face type.
const TWO: Sizes = sizes! { vocab_size 256_000, seq_len 8192, d_model 2304, n_layers 26, heads 8, kv_heads 4, width 9216 };

const HEAD_DIM: usize = 256;
/// `query_pre_attn_scalar`.
const SCALAR: f64 = 256.0;
const WINDOW: usize = 4096;
/// The layers without a window.
const FULL: FullLayers = FullLayers::Every { every: 2 };
const ATTENTION_CAP: f64 = 50.0;
const LOGIT_CAP: f64 = 30.0;

pub(super) fn presets() -> Vec<Preset> {
    let nine = sizes! { d_model 3584, n_layers 42, heads 16, kv_heads 8, width 14_336; ..TWO };
    let twenty_seven =
        sizes! { d_model 4608, n_layers 46, heads 32, kv_heads 16, width 36_864; ..TWO };
    presets! {
        "gemma2-2b", "Gemma 2, 2B parameters, tied" => sized(TWO, HEAD_DIM, SCALAR);
        "gemma2-9b", "Gemma 2, 9B parameters, tied" => sized(nine, HEAD_DIM, SCALAR);
        "gemma2-27b", "Gemma 2, 27B parameters, tied" => sized(twenty_seven, 128, 144.0);
    }
}

fn sized(sizes: Sizes, head_dim: usize, scalar: f64) -> ModelConfig {
    ModelConfig {
        head_dim: Some(head_dim),
        attention: AttentionKind::Softmax {
            window: Some(Window {
                full_layers: FULL,
                ..Window::new(WINDOW)
            }),
            scale: Some(scalar.sqrt().recip()),
            soft_cap: Some(ATTENTION_CAP),
            sinks: false,
        },
        feed_forward: FeedForward::gated(Activation::GeluTanh).with_expansion(sizes.expansion()),
        head: capped_head(true, Some(LOGIT_CAP)),
        ..of_type(sizes.config(Family::Gemma2), 1e-6)
    }
}

/// Sets the fields that are the same in every model of the type.
pub(super) fn of_type(raw: ModelConfig, epsilon: f64) -> ModelConfig {
    ModelConfig {
        scale_embedding: true,
        norm: Norm::OffsetRms { epsilon },
        wiring: Wiring::Sandwich,
        ..raw
    }
}

pub(super) fn capped_head(tied: bool, soft_cap: Option<f64>) -> Head {
    Head {
        soft_cap,
        ..head(tied)
    }
}

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    fields.only(
        "use_bidirectional_attention",
        false,
        "attention in both directions is not computed",
    )?;
    let raw = read_common(fields, Family::Gemma2, TWO, Some(HEAD_DIM))?;
    fields.divides("num_attention_heads", raw.heads, "hidden_size", raw.d_model)?;
    let (window, _) = layers::kinds(fields, raw.n_layers, WINDOW, &FULL)?;
    let scalar = scalar(fields)?;
    let activation = activation(fields, "hidden_activation", Activation::GeluTanh)?;
    let tied = fields.flag("tie_word_embeddings", true)?;
    let soft_cap = cap(fields, "final_logit_softcapping", Some(LOGIT_CAP))?;
    let epsilon = raw.norm.epsilon();
    Ok(ModelConfig {
        bias: fields.attention_biases()?,
        attention: AttentionKind::Softmax {
            window,
            scale: Some(scalar.sqrt().recip()),
            soft_cap: cap(fields, "attn_logit_softcapping", Some(ATTENTION_CAP))?,
            sinks: false,
        },
        feed_forward: FeedForward {
            activation,
            ..raw.feed_forward
        },
        head: capped_head(tied, soft_cap),
        ..of_type(raw, epsilon)
    })
}

/// Reads `query_pre_attn_scalar`.
pub(super) fn scalar(fields: &Fields<'_>) -> Result<f64, HuggingFaceError> {
    match fields.number("query_pre_attn_scalar", SCALAR)? {
        scalar if scalar.is_finite() && scalar > 0.0 => Ok(scalar),
        _ => Err(fields.error("query_pre_attn_scalar", "must be above 0")),
    }
}

/// Reads a soft cap; null disables it.
pub(super) fn cap(
    fields: &Fields<'_>,
    name: &str,
    default: Option<f64>,
) -> Result<Option<f64>, HuggingFaceError> {
    match fields.has(name) {
        true => fields.optional_number(name),
        false => Ok(default),
    }
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    write_over(config, write_common(config))
}

/// Adds the fields that the types of Gemma share to those of LLaMA's.
pub(super) fn write_over(
    config: &TransformerConfig,
    mut fields: Map<String, Value>,
) -> Map<String, Value> {
    fields.remove("hidden_act");
    let activation = pytorch_activation_name(config.activation());
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    set("hidden_activation", json!(activation));
    set("attention_bias", json!(config.bias().qkv));
    set("final_logit_softcapping", json!(config.head().soft_cap));
    if let AttentionKind::Softmax {
        scale, soft_cap, ..
    } = config.attention()
    {
        let scalar = match scale {
            Some(scale) => scalar_of(*scale),
            None => json!(config.head_dim()),
        };
        set("query_pre_attn_scalar", scalar);
        set("attn_logit_softcapping", json!(soft_cap));
    }
    layers::write_types(config, &mut fields);
    fields
}

/// Returns `1/scale²`, as an integer if the integer has exactly this scale.
fn scalar_of(scale: f64) -> Value {
    let scalar = (scale * scale).recip();
    match scalar.round() {
        whole if whole.sqrt().recip() == scale => json!(whole as u64),
        _ => json!(scalar),
    }
}

/// Tensor names of Hugging Face checkpoints: those of LLaMA, except for the four norms per block. Gemma 3 has them too.
pub(super) const NAMES: Names<'static> = llama::names(&[NORMS, QK_NORMS, ATTENTION, GATED]);

const NORMS: &[TensorName] = &[
    as_is("norm1.gain", "input_layernorm.weight"),
    as_is("norm1_after.gain", "post_attention_layernorm.weight"),
    as_is("norm2.gain", "pre_feedforward_layernorm.weight"),
    as_is("norm2_after.gain", "post_feedforward_layernorm.weight"),
];
