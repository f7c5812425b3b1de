//! DistilBERT (Sanh et al. 2019, [1910.01108](https://arxiv.org/abs/1910.01108)): BERT without segments and pooler,
//! with a classifier `W₂ · relu(W₁ · x₀)`.

use emberlm_kernels::Activation;
use serde_json::{Map, Value, json};

use super::{EncoderExchange, HeadNames, HeadStyle, initialization, initializer_range};
use crate::config::FeedForward;
use crate::error::HuggingFaceError;
use crate::exchange::fields::Fields;
use crate::exchange::names::{activation, activation_name};
use crate::transformer::encoder::{EncoderSettings, PooledActivation};
use crate::weights::names::{TensorName, as_is, linear, query_key_value};

pub(crate) const EXCHANGE: EncoderExchange = EncoderExchange {
    model_type: "distilbert",
    class: "DistilBert",
    prefix: "distilbert.",
    names: NAMES,
    heads: HeadNames {
        pooler: None,
        masked_lm: &[
            linear("head.dense", "vocab_transform"),
            as_is("head.norm", "vocab_layer_norm"),
            as_is("head.bias", "vocab_projector.bias"),
        ],
        tied: &[(
            "vocab_projector.weight",
            "distilbert.embeddings.word_embeddings.weight",
        )],
        sequence: &[
            linear("head.dense", "pre_classifier"),
            linear("head.out", "classifier"),
        ],
        token: &[linear("head.out", "classifier")],
    },
    read,
    write,
    style: |_, settings| {
        let activation = settings.feed_forward.activation;
        let relu = PooledActivation::Other(Activation::Relu);
        Ok(HeadStyle::bert(activation, relu))
    },
};

fn read(fields: &Fields<'_>) -> Result<EncoderSettings, HuggingFaceError> {
    let d_model = fields.size_by_names(["hidden_size", "dim"], 768)?;
    let heads = fields.size_by_names(["num_attention_heads", "n_heads"], 12)?;
    fields.divides("n_heads", heads, "dim", d_model)?;
    let activation = activation(fields, "activation", Activation::Gelu)?;
    let width = fields.size("hidden_dim", 3072)?;
    Ok(EncoderSettings {
        vocab_size: fields.size("vocab_size", 30_522)?,
        positions: fields.size("max_position_embeddings", 512)?,
        segments: 0,
        n_layers: fields.size_by_names(["num_hidden_layers", "n_layers"], 6)?,
        feed_forward: FeedForward::dense(activation).with_width(width),
        dropout: fields.number("dropout", 0.1)?,
        attention_dropout: fields.number("attention_dropout", 0.1)?,
        init: initialization(fields)?,
        ..EncoderSettings::new(d_model, heads)
    })
}

fn write(settings: &EncoderSettings) -> Map<String, Value> {
    let fields = [
        ("vocab_size", json!(settings.vocab_size)),
        ("max_position_embeddings", json!(settings.positions)),
        ("dim", json!(settings.d_model)),
        ("n_layers", json!(settings.n_layers)),
        ("n_heads", json!(settings.heads)),
        ("hidden_dim", json!(settings.feed_forward.width)),
        (
            "activation",
            json!(activation_name(settings.feed_forward.activation)),
        ),
        ("dropout", json!(settings.dropout)),
        ("attention_dropout", json!(settings.attention_dropout)),
        ("initializer_range", initializer_range(settings.init)),
    ];
    fields
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}

const NAMES: &[TensorName] = &[
    as_is("tokens", "distilbert.embeddings.word_embeddings.weight"),
    as_is("positions", "distilbert.embeddings.position_embeddings"),
    as_is("norm_embedding", "distilbert.embeddings.LayerNorm"),
    query_key_value(
        "blocks.*.attention.qkv",
        [
            "distilbert.transformer.layer.*.attention.q_lin",
            "distilbert.transformer.layer.*.attention.k_lin",
            "distilbert.transformer.layer.*.attention.v_lin",
        ],
    ),
    linear(
        "blocks.*.attention.out",
        "distilbert.transformer.layer.*.attention.out_lin",
    ),
    as_is(
        "blocks.*.norm1",
        "distilbert.transformer.layer.*.sa_layer_norm",
    ),
    linear(
        "blocks.*.feed_forward.up",
        "distilbert.transformer.layer.*.ffn.lin1",
    ),
    linear(
        "blocks.*.feed_forward.down",
        "distilbert.transformer.layer.*.ffn.lin2",
    ),
    as_is(
        "blocks.*.norm2",
        "distilbert.transformer.layer.*.output_layer_norm",
    ),
];
