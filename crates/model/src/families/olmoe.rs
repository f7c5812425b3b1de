//! OLMoE (Muennighoff et al. 2024): LLaMA's block with a mixture of many small experts, and norms over all queries and all
//! keys of a token.
//!
//! ```text
//! x = x + Wo · attention(rope(rms(q)), rope(rms(k)), v)      a norm over all heads together each
//! x = x + Σ pₑ · expertₑ(rms₂(x))                   the 8 of 64 experts with the largest p = softmax(R · rms₂(x)),
//!                                                   whose sum is below 1
//! expert(x) = W₂ · (silu(W₁ · x) ∘ W₃ · x)
//! logits = H · rms(x)
//! ```

use super::llama::{exchange, read_common, write_common};
use super::prelude::*;
pub(super) use super::qwen3_moe::NAMES;

pub(super) const EXCHANGE: Option<Exchange> =
    Some(exchange("olmoe", "OlmoeForCausalLM", read, write));

const SIZES: Sizes = sizes! { vocab_size 50_304, seq_len 4096, d_model 2048, n_layers 16, heads 16, kv_heads 16, width 1024 };

pub(super) fn presets() -> Vec<Preset> {
    let config = ModelConfig {
        qk_norm: true,
        qk_norm_span: QkNormSpan::Projection,
        experts: Some(Experts {
            z_loss: 0.001,
            ..experts::of(64, 8, 0.01)
        }),
        ..SIZES.config(Family::Olmoe)
    };
    presets! {
        "olmoe-1b-7b", "OLMoE 1B-7B, 8 of 64 experts per token" => config;
    }
}

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    fields.refuse(
        "clip_qkv",
        "clipped queries, keys and values are not supported",
    )?;
    let defaults = sizes! { kv_heads 0, width 2048; ..SIZES };
    let found = read_common(fields, Family::Olmoe, defaults, None)?;
    // The norms' widths are those of heads that share the model's width.
    if found.head_dim != Some(found.d_model / found.heads.max(1)) {
        let rule = "must be hidden_size / num_attention_heads for this type";
        return Err(fields.error("head_dim", rule));
    }
    let defaults = experts::of(64, 8, 0.01);
    Ok(ModelConfig {
        norm: Norm::Rms {
            epsilon: fields.number("rms_norm_eps", 1e-5)?,
        },
        bias: fields.attention_biases()?,
        qk_norm: true,
        qk_norm_span: QkNormSpan::Projection,
        experts: Some(Experts {
            width: found.feed_forward.width,
            normalize: fields.flag("norm_topk_prob", false)?,
            ..experts::read(fields, defaults)?
        }),
        ..found
    })
}

fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = write_common(config);
    let normalize = config.experts().map(|experts| experts.normalize);
    fields.insert("attention_bias".to_owned(), json!(config.bias().qkv));
    fields.insert("norm_topk_prob".to_owned(), json!(normalize));
    experts::write(config, "num_experts", &mut fields);
    fields
}
