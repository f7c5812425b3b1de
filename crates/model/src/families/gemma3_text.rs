//! Gemma 3's text models (Gemma Team 2025, [2503.19786](https://arxiv.org/abs/2503.19786)): Gemma 2 with norms of queries and keys in place of
//! soft caps.
//!
//! ```text
//! x = √d_model · E[token]
//! x = x + rms₂(Wo · attention(rope(rms(q)), rope(rms(k)), v))     q, k, v = W · rms₁(x)
//! x = x + rms₄(W₂ · (gelu(W₁ · rms₃(x)) ∘ W₃ · rms₃(x)))          GELU by tanh
//! logits = E · rms(x)                                             tied to the embedding; no biases; ε 1e-6
//! ```
//!
//! The gain of each RMSNorm is `1 + w`. Five of six layers have a window and the rotary base 10,000; the sixth attends to every
//! earlier token and has the base 1,000,000, scaled in the larger models.

pub(super) use super::gemma2::NAMES;
use super::gemma2::{cap, capped_head, of_type, scalar, write_over};
use super::llama::{exchange, read_sizes, write_common};
use super::prelude::*;

pub(super) const EXCHANGE: Option<Exchange> =
    Some(exchange("gemma3_text", "Gemma3ForCausalLM", read, write).within(&["gemma3"]));

const HEAD_DIM: usize = 256;
const LOCAL_BASE: f64 = 10_000.0;
const GLOBAL_BASE: f64 = 1_000_000.0;
/// The last layer of each group of six has no window.
const PATTERN: usize = 6;

pub(super) fn presets() -> Vec<Preset> {
    let small = sizes! { vocab_size 262_144, seq_len 32_768, d_model 640, n_layers 18, heads 4, kv_heads 1, width 2048 };
    let one = sizes! { d_model 1152, n_layers 26, width 6912; ..small };
    presets! {
        "gemma3-270m", "Gemma 3, 270M parameters, tied" => sized(small);
        "gemma3-1b", "Gemma 3, 1B parameters, tied" => sized(one);
    }
}

fn sized(sizes: Sizes) -> ModelConfig {
    let full_layers = FullLayers::Every { every: PATTERN };
    let raw = ModelConfig {
        head_dim: Some(HEAD_DIM),
        qk_norm: true,
        attention: AttentionKind::windowed(Window {
            full_layers: full_layers.clone(),
            ..Window::new(512)
        }),
        position: rotary(None, LOCAL_BASE, RotaryLayout::HalfSplit),
        layer_positions: Some(LayerPositions::Rotary {
            layers: full_layers,
            base: GLOBAL_BASE,
            scaling: RotaryScaling::None,
        }),
        feed_forward: FeedForward::gated(Activation::GeluTanh).with_expansion(sizes.expansion()),
        head: head(true),
        ..sizes.config(Family::Gemma3Text)
    };
    of_type(raw, 1e-6)
}

const LOCAL_ROPE: RopeFields = RopeFields {
    base: "rope_local_base_freq",
    ..FULL_HEAD
};

const GLOBAL_ROPE: RopeFields = RopeFields {
    default_base: GLOBAL_BASE,
    ..FULL_HEAD
};

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    fields.only(
        "use_bidirectional_attention",
        false,
        "attention in both directions is not computed",
    )?;
    // A field that `transformers` reads and does not use.
    fields.refuse(
        "attn_logit_softcapping",
        "capped scores are not of this type",
    )?;
    let defaults = sizes! { vocab_size 262_208, seq_len 131_072, d_model 2304, n_layers 26, heads 8, kv_heads 4, width 9216 };
    let raw = read_sizes(fields, Family::Gemma3Text, defaults, Some(HEAD_DIM))?;
    fields.divides("num_attention_heads", raw.heads, "hidden_size", raw.d_model)?;
    let every = fields.size("sliding_window_pattern", PATTERN)?;
    let full = FullLayers::Every { every };
    let (window, full_layers) = layers::kinds(fields, raw.n_layers, 4096, &full)?;
    let head_dim = raw.head_dim.unwrap_or_default();
    let kinds = rope::read_kinds(fields, [&LOCAL_ROPE, &GLOBAL_ROPE], head_dim, raw.seq_len)?;
    let (position, layer_positions) = rope::of_kinds(kinds, full_layers, raw.n_layers);
    let activation = activation(fields, "hidden_activation", Activation::GeluTanh)?;
    let tied = fields.flag("tie_word_embeddings", true)?;
    let epsilon = raw.norm.epsilon();
    let raw = ModelConfig {
        bias: fields.attention_biases()?,
        qk_norm: true,
        attention: AttentionKind::Softmax {
            window,
            scale: Some(scalar(fields)?.sqrt().recip()),
            soft_cap: None,
            sinks: false,
        },
        position,
        layer_positions,
        feed_forward: FeedForward {
            activation,
            ..raw.feed_forward
        },
        head: capped_head(tied, cap(fields, "final_logit_softcapping", None)?),
        ..raw
    };
    Ok(of_type(raw, epsilon))
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_over(config, write_common(config));
    if let Some(rope) = rope::write_kinds(config) {
        fields.insert("rope_parameters".to_owned(), rope);
    }
    fields
}
