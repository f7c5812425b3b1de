//! Granite 3's dense models (IBM 2024): LLaMA's block with factors on embeddings, scores, residuals and logits, as maximal
//! update parametrization has them (Yang et al. 2022, [2203.03466](https://arxiv.org/abs/2203.03466)).
//!
//! ```text
//! x = 12 · E[token]
//! x = x + 0.22 · Wo · attention(rope(q), rope(k), v)        q, k, v = W · rms₁(x); scores q kᵀ / 64
//! x = x + 0.22 · W₂ · (silu(W₁ · rms₂(x)) ∘ W₃ · rms₂(x))
//! logits = E · rms(x) / 8                           ε 1e-5; no biases; tied
//! ```

pub(super) use super::llama::NAMES;
use super::llama::{self, read_common, write_common};
use super::prelude::*;

pub(super) const EXCHANGE: Option<Exchange> = Some(llama::exchange(
    "granite",
    "GraniteForCausalLM",
    read,
    write,
));

pub(super) fn presets() -> Vec<Preset> {
    let two = sizes! { vocab_size 49_155, seq_len 4096, d_model 2048, n_layers 40, heads 32, kv_heads 8, width 8192 };
    let eight = sizes! { d_model 4096, width 12_800; ..two };
    let model = |sizes: Sizes, attention, logits| {
        let raw = sizes.config(Family::Granite);
        let factors = Factors {
            embedding: 12.0,
            attention,
            residual: 0.22,
            logits,
        };
        factors.applied(raw, true)
    };
    presets! {
        "granite-3-2b", "Granite 3.0, 2B parameters, tied" => model(two, 1.0 / 64.0, 8.0);
        "granite-3-8b", "Granite 3.0, 8B parameters, tied" => model(eight, 1.0 / 128.0, 16.0);
    }
}

/// Factors in `config.json`. Logits are divided by their factor.
struct Factors {
    embedding: f64,
    attention: f64,
    residual: f64,
    logits: f64,
}

impl Factors {
    fn applied(&self, raw: ModelConfig, tied: bool) -> ModelConfig {
        let other_than_one = |factor: f64| (factor != 1.0).then_some(factor);
        ModelConfig {
            attention: AttentionKind::scaled(Some(self.attention)),
            embedding_scale: other_than_one(self.embedding),
            residual_scale: other_than_one(self.residual),
            head: Head {
                tied,
                scale: other_than_one(self.logits.recip()),
                ..common(Family::Granite).head
            },
            ..raw
        }
    }
}

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    let defaults = sizes! { vocab_size 32_000, seq_len 2048, d_model 4096, n_layers 32, heads 32, kv_heads 0, width 11_008 };
    let raw = read_common(fields, Family::Granite, defaults, None)?;
    let factor = |name: &str| fields.number(name, 1.0);
    let factors = Factors {
        embedding: factor("embedding_multiplier")?,
        attention: factor("attention_multiplier")?,
        residual: factor("residual_multiplier")?,
        logits: factor("logits_scaling")?,
    };
    let tied = raw.head.tied;
    Ok(ModelConfig {
        bias: Biases {
            feed_forward: fields.flag("mlp_bias", false)?,
            ..fields.attention_biases()?
        },
        ..factors.applied(raw, tied)
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_common(config);
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    set("attention_bias", json!(config.bias().qkv));
    set("mlp_bias", json!(config.bias().feed_forward));
    let factor = |factor: Option<f64>| json!(factor.unwrap_or(1.0));
    set("embedding_multiplier", factor(config.embedding_scale()));
    set("residual_multiplier", factor(config.residual_scale()));
    set("logits_scaling", factor(config.logit_scale().map(divisor)));
    if let AttentionKind::Softmax { scale, .. } = config.attention() {
        let scale = scale.unwrap_or_else(|| (config.head_dim() as f64).sqrt().recip());
        set("attention_multiplier", json!(scale));
    }
    fields
}

/// Returns the divisor whose reciprocal is this factor.
fn divisor(scale: f64) -> f64 {
    let divisor = scale.recip();
    // The reciprocal of a reciprocal can be the neighbour of the number that was read.
    let near = [divisor, divisor.next_up(), divisor.next_down()];
    let exact = near.into_iter().find(|near| near.recip() == scale);
    match divisor.round() {
        whole if whole.recip() == scale => whole,
        _ => exact.unwrap_or(divisor),
    }
}
