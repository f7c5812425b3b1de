//! BERT (Devlin et al. 2018, [1810.04805](https://arxiv.org/abs/1810.04805)).
//!
//! ```text
//! x = ln(E[token] + P[i] + S[segment])
//! x = ln(x + Wo · attention(q, k, v))           q, k, v = W · x; every token attends to every token
//! x = ln(x + W₂ · gelu(W₁ · x))                 GELU by erf
//! masked LM: logits = E · ln(gelu(W · x)) + b   classifier: W₂ · tanh(W₁ · x₀)
//! ```
//!
//! Biases everywhere, ε 1e-12.

use emberlm_kernels::Activation;
use serde_json::{Map, Value, json};

use super::{EncoderExchange, HeadNames, HeadStyle, initialization, initializer_range, layer_norm};
use crate::config::FeedForward;
use crate::error::HuggingFaceError;
use crate::exchange::fields::Fields;
use crate::exchange::names::{activation, activation_name};
use crate::transformer::encoder::{EncoderSettings, PooledActivation};
use crate::weights::names::{TensorName, as_is, linear, query_key_value};

pub(crate) const EXCHANGE: EncoderExchange = EncoderExchange {
    model_type: "bert",
    class: "Bert",
    prefix: "bert.",
    names: NAMES,
    heads: HeadNames {
        pooler: Some(&[linear("head.dense", "bert.pooler.dense")]),
        masked_lm: &[
            linear("head.dense", "cls.predictions.transform.dense"),
            as_is("head.norm", "cls.predictions.transform.LayerNorm"),
            as_is("head.bias", "cls.predictions.bias"),
        ],
        tied: &[
            (
                "cls.predictions.decoder.weight",
                "bert.embeddings.word_embeddings.weight",
            ),
            ("cls.predictions.decoder.bias", "cls.predictions.bias"),
        ],
        sequence: &[
            linear("head.dense", "bert.pooler.dense"),
            linear("head.out", "classifier"),
        ],
        token: &[linear("head.out", "classifier")],
    },
    read: |fields| read(fields, 512, 1e-12, 2),
    write,
    style: |_, settings| {
        let activation = settings.feed_forward.activation;
        Ok(HeadStyle::bert(activation, PooledActivation::Tanh))
    },
};

/// Reads the fields that BERT and RoBERTa share, with a type's number of positions, ε and number of segments.
pub(super) fn read(
    fields: &Fields<'_>,
    positions: usize,
    epsilon: f64,
    segments: usize,
) -> Result<EncoderSettings, HuggingFaceError> {
    fields.only("is_decoder", false, "a causal BERT is not supported")?;
    fields.only(
        "add_cross_attention",
        false,
        "cross-attention is not supported",
    )?;
    if fields
        .optional_text("position_embedding_type")?
        .is_some_and(|kind| kind != "absolute")
    {
        return Err(fields.error("position_embedding_type", "must be absolute"));
    }
    let d_model = fields.size("hidden_size", 768)?;
    let heads = fields.size("num_attention_heads", 12)?;
    fields.divides("num_attention_heads", heads, "hidden_size", d_model)?;
    let activation = activation(fields, "hidden_act", Activation::Gelu)?;
    let width = fields.size("intermediate_size", 3072)?;
    Ok(EncoderSettings {
        vocab_size: fields.size("vocab_size", 30_522)?,
        positions: fields.size("max_position_embeddings", positions)?,
        segments: fields.size("type_vocab_size", segments)?,
        n_layers: fields.size("num_hidden_layers", 12)?,
        feed_forward: FeedForward::dense(activation).with_width(width),
        norm: layer_norm(fields, "layer_norm_eps", epsilon)?,
        dropout: fields.number("hidden_dropout_prob", 0.1)?,
        attention_dropout: fields.number("attention_probs_dropout_prob", 0.1)?,
        init: initialization(fields)?,
        ..EncoderSettings::new(d_model, heads)
    })
}

/// The fields for [`read`].
pub(super) fn write(settings: &EncoderSettings) -> Map<String, Value> {
    let fields = [
        ("vocab_size", json!(settings.vocab_size)),
        ("max_position_embeddings", json!(settings.positions)),
        ("type_vocab_size", json!(settings.segments)),
        ("hidden_size", json!(settings.d_model)),
        ("num_hidden_layers", json!(settings.n_layers)),
        ("num_attention_heads", json!(settings.heads)),
        ("intermediate_size", json!(settings.feed_forward.width)),
        (
            "hidden_act",
            json!(activation_name(settings.feed_forward.activation)),
        ),
        ("layer_norm_eps", json!(settings.norm.epsilon())),
        ("hidden_dropout_prob", json!(settings.dropout)),
        (
            "attention_probs_dropout_prob",
            json!(settings.attention_dropout),
        ),
        ("initializer_range", initializer_range(settings.init)),
    ];
    fields
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}

const NAMES: &[TensorName] = &[
    as_is("tokens", "bert.embeddings.word_embeddings.weight"),
    as_is("positions", "bert.embeddings.position_embeddings"),
    as_is("segments", "bert.embeddings.token_type_embeddings.weight"),
    as_is("norm_embedding", "bert.embeddings.LayerNorm"),
    query_key_value(
        "blocks.*.attention.qkv",
        [
            "bert.encoder.layer.*.attention.self.query",
            "bert.encoder.layer.*.attention.self.key",
            "bert.encoder.layer.*.attention.self.value",
        ],
    ),
    linear(
        "blocks.*.attention.out",
        "bert.encoder.layer.*.attention.output.dense",
    ),
    as_is(
        "blocks.*.norm1",
        "bert.encoder.layer.*.attention.output.LayerNorm",
    ),
    linear(
        "blocks.*.feed_forward.up",
        "bert.encoder.layer.*.intermediate.dense",
    ),
    linear(
        "blocks.*.feed_forward.down",
        "bert.encoder.layer.*.output.dense",
    ),
    as_is("blocks.*.norm2", "bert.encoder.layer.*.output.LayerNorm"),
];
