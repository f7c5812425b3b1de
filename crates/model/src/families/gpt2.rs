//! GPT-2 (Radford et al. 2019).
//!
//! ```text
//! x = E[token] + P[position]
//! x = x + Wo · attention(W · ln₁(x))                ln: LayerNorm, ε 1e-5
//! x = x + W₂ · gelu(W₁ · ln₂(x))                    biases throughout
//! logits = E · ln_f(x)                              tied to the embedding
//! ```
//!
//! OpenAI's weights and the Hugging Face type use the tanh approximation of GELU. nanoGPT uses the exact GELU, and
//! biases are optional. The presets follow nanoGPT; for published weights, `config.json` specifies the activation.

use super::prelude::*;
use crate::weights::names::as_is;

pub(super) fn presets() -> Vec<Preset> {
    let gpt2 = |d_model, n_layers, heads| ModelConfig {
        vocab_size: Some(50_257),
        ..sized(1024, d_model, n_layers, heads)
    };
    presets! {
        "gpt2-small", "GPT-2 small, 124M parameters" => gpt2(768, 12, 12);
        "gpt2-medium", "GPT-2 medium, 355M parameters" => gpt2(1024, 24, 16);
        "gpt2-large", "GPT-2 large, 774M parameters" => gpt2(1280, 36, 20);
        "gpt2-xl", "GPT-2 XL, 1.5B parameters" => gpt2(1600, 48, 25);
        "char-nano", "nanoGPT's CPU model for characters: 4 layers of width 128, no biases" => without_biases(sized(64, 128, 4, 4));
        "char-small", "nanoGPT's GPU model for characters: 6 layers of width 384, no biases" => without_biases(sized(256, 384, 6, 6));
        "bpe-nano", "as char-nano, for small byte-pair vocabularies on a CPU: 6 layers of width 192" => without_biases(sized(256, 192, 6, 6));
    }
}

/// nanoGPT's `bias=False`.
fn without_biases(config: ModelConfig) -> ModelConfig {
    ModelConfig {
        bias: Biases::all(false),
        norm: Norm::Layer {
            bias: false,
            epsilon: 1e-5,
        },
        ..config
    }
}

fn sized(seq_len: usize, d_model: usize, n_layers: usize, heads: usize) -> ModelConfig {
    ModelConfig {
        seq_len,
        d_model,
        n_layers,
        heads,
        bias: Biases::all(true),
        norm: layer_norm(1e-5),
        position: Position::Learned,
        feed_forward: FeedForward::dense(Activation::Gelu),
        head: head(true),
        init: Init::Normal {
            std: 0.02,
            scale_residual: true,
        },
        ..common(Family::Gpt2)
    }
}

pub(super) const EXCHANGE: Option<Exchange> = Some(Exchange {
    further_blocks: false,
    within: &[],
    model_type: "gpt2",
    architecture: "GPT2LMHeadModel",
    prefix: "transformer.",
    embedding: "transformer.wte.weight",
    head: "lm_head.weight",
    constant: |name| name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"),
    read,
    write,
    complete: |raw| {
        raw.bias = Biases::all(true);
        complete_norms(raw);
    },
});

fn read(fields: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    fields.only(
        "scale_attn_weights",
        true,
        "unscaled attention is not computed",
    )?;
    fields.only(
        "scale_attn_by_inverse_layer_idx",
        false,
        "attention scaled by its layer is not computed",
    )?;
    fields.only(
        "add_cross_attention",
        false,
        "cross-attention is not computed",
    )?;
    let [seq_len, d_model, n_layers, heads] = read_sizes(fields, [1024, 768, 12, 12])?;
    let raw = ModelConfig {
        vocab_size: Some(50_257),
        ..sized(seq_len, d_model, n_layers, heads)
    };
    read_common(fields, raw)
}

/// Reads the context length, width, number of layers and number of heads.
pub(super) fn read_sizes(
    fields: &Fields<'_>,
    defaults: [usize; 4],
) -> Result<[usize; 4], HuggingFaceError> {
    let [seq_len, d_model, n_layers, heads] = defaults;
    let sizes = [
        fields.size_by_names(["max_position_embeddings", "n_positions"], seq_len)?,
        fields.size_by_names(["hidden_size", "n_embd"], d_model)?,
        fields.size_by_names(["num_hidden_layers", "n_layer"], n_layers)?,
        fields.size_by_names(["num_attention_heads", "n_head"], heads)?,
    ];
    fields.divides("n_head", sizes[3], "n_embd", sizes[1])?;
    Ok(sizes)
}

/// Reads the other fields that GPT-2 and GPT-J share. `defaults` is the type's default configuration.
pub(super) fn read_common(
    fields: &Fields<'_>,
    defaults: ModelConfig,
) -> Result<ModelConfig, HuggingFaceError> {
    let scale_residual = matches!(
        defaults.init,
        Init::Normal {
            scale_residual: true,
            ..
        }
    );
    Ok(ModelConfig {
        vocab_size: Some(fields.size("vocab_size", defaults.vocab_size.unwrap_or(50_257))?),
        norm: layer_norm(fields.number("layer_norm_epsilon", 1e-5)?),
        feed_forward: FeedForward::dense(activation(
            fields,
            "activation_function",
            Activation::GeluTanh,
        )?)
        .with_width(
            fields
                .optional_size("n_inner")?
                .unwrap_or(4 * defaults.d_model),
        ),
        head: Head {
            tied: fields.flag("tie_word_embeddings", defaults.head.tied)?,
            ..defaults.head
        },
        init: Init::Normal {
            std: fields.number("initializer_range", 0.02)?,
            scale_residual,
        },
        ..defaults
    })
}

/// Writes the fields that [`read_sizes`] and [`read_common`] read.
pub(super) fn write(config: &TransformerConfig) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    set("n_positions", json!(config.seq_len()));
    set("n_embd", json!(config.d_model()));
    set("n_layer", json!(config.n_layers()));
    set("n_head", json!(config.heads()));
    set("n_inner", json!(config.feed_forward_width()));
    set(
        "activation_function",
        json!(activation_name(config.activation())),
    );
    set("layer_norm_epsilon", json!(config.norm_epsilon()));
    fields
}

/// Tensor names of Hugging Face checkpoints. Linear layers are of class `Conv1D`, which stores `[in, out]`.
pub(super) const NAMES: Names<'static> = Names {
    model: &[
        as_is("tokens", "transformer.wte.weight"),
        as_is("positions.weight", "transformer.wpe.weight"),
        as_is("norm_final", "transformer.ln_f"),
        as_is("head", "lm_head.weight"),
    ],
    block: "transformer.h.*",
    blocks: &[&[
        as_is("norm1", "ln_1"),
        as_is("norm2", "ln_2"),
        as_is("attention.qkv", "attn.c_attn"),
        as_is("attention.out", "attn.c_proj"),
        as_is("feed_forward.up", "mlp.c_fc"),
        as_is("feed_forward.down", "mlp.c_proj"),
    ]],
};
