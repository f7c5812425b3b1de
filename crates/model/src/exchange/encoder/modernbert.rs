//! ModernBERT (Warner et al. 2024, [2412.13663](https://arxiv.org/abs/2412.13663)).
//!
//! ```text
//! x = ln(E[token])
//! x = x + Wo · attention(rope(q), rope(k), v)   q, k, v = W · ln₁(x), in the first block W · x
//! x = x + W₂ · (gelu(W₁ · u) ∘ W₃ · u)          u = ln₂(x); GELU by erf
//! states = ln(x)
//! masked LM: logits = E · ln(gelu(W · x)) + b   classifier: W₂ · ln(gelu(W₁ · pooled states))
//! ```
//!
//! Every third block attends to all tokens, with the rotary base 160,000; the others attend to the tokens at most 64
//! away, with the base 10,000. Norms and linear layers have no biases by default, ε 1e-5.

use emberlm_kernels::Activation;
use serde_json::{Map, Value, json};

use super::{EncoderExchange, HeadNames, HeadStyle, initializer_range};
use crate::config::{
    Biases, FeedForward, FullLayers, Init, LayerPositions, Norm, Position, Wiring,
};
use crate::error::HuggingFaceError;
use crate::exchange::fields::Fields;
use crate::exchange::layers::{type_name, types};
use crate::exchange::names::{activation, activation_name};
use crate::exchange::rope::{FULL_HEAD, RopeFields, of_kinds, read_kinds, written_kinds};
use crate::transformer::encoder::{
    EncoderHeadConfig, EncoderSettings, LocalWindow, PooledActivation, Pooling, TokenLayer,
};
use crate::weights::names::{TensorName, as_is, linear, part_of};

/// The tensors of both classifiers.
const CLASSIFIER: &[TensorName] = &[
    linear("head.dense", "head.dense"),
    as_is("head.norm", "head.norm"),
    linear("head.out", "classifier"),
];

pub(crate) const EXCHANGE: EncoderExchange = EncoderExchange {
    model_type: "modernbert",
    class: "ModernBert",
    prefix: "model.",
    names: NAMES,
    heads: HeadNames {
        pooler: None,
        masked_lm: &[
            linear("head.dense", "head.dense"),
            as_is("head.norm", "head.norm"),
            as_is("head.bias", "decoder.bias"),
        ],
        tied: &[("decoder.weight", "model.embeddings.tok_embeddings.weight")],
        sequence: CLASSIFIER,
        token: CLASSIFIER,
    },
    read,
    write,
    style,
};

const LOCAL_ROPE: RopeFields = RopeFields {
    base: "local_rope_theta",
    ..FULL_HEAD
};

const GLOBAL_ROPE: RopeFields = RopeFields {
    base: "global_rope_theta",
    default_base: 160_000.0,
    ..FULL_HEAD
};

fn read(fields: &Fields<'_>) -> Result<EncoderSettings, HuggingFaceError> {
    fields.refuse("rope_scaling", "must be in rope_parameters for this type")?;
    let d_model = fields.size("hidden_size", 768)?;
    let heads = fields.size("num_attention_heads", 12)?;
    fields.divides("num_attention_heads", heads, "hidden_size", d_model)?;
    let n_layers = fields.size("num_hidden_layers", 22)?;
    let positions = fields.size("max_position_embeddings", 8192)?;
    let slides = match types(fields, n_layers)? {
        Some(slides) => slides,
        None => {
            let every = fields.size("global_attn_every_n_layers", 3)?;
            (0..n_layers).map(|layer| layer % every != 0).collect()
        }
    };
    let full: Vec<usize> = (0..n_layers).filter(|&layer| !slides[layer]).collect();
    let distance = fields.size("local_attention", 128)? / 2;
    let window = (full.len() < n_layers).then(|| LocalWindow {
        distance,
        full_layers: FullLayers::Listed(full.clone()),
    });
    let kinds = read_kinds(
        fields,
        [&LOCAL_ROPE, &GLOBAL_ROPE],
        d_model / heads,
        positions,
    )?;
    let (position, layer_positions) = of_kinds(kinds, full, n_layers);
    let attention_bias = fields.flag("attention_bias", false)?;
    let activation = activation(fields, "hidden_activation", Activation::Gelu)?;
    Ok(EncoderSettings {
        vocab_size: fields.size("vocab_size", 50_368)?,
        positions,
        position,
        layer_positions,
        window,
        segments: 0,
        n_layers,
        feed_forward: FeedForward::gated(activation)
            .with_width(fields.size("intermediate_size", 1152)?),
        norm: Norm::Layer {
            bias: fields.flag("norm_bias", false)?,
            epsilon: fields.number("norm_eps", 1e-5)?,
        },
        wiring: Wiring::PreNorm,
        first_norm: false,
        bias: Biases {
            qkv: attention_bias,
            attention_out: attention_bias,
            feed_forward: fields.flag("mlp_bias", false)?,
        },
        dropout: fields.number("embedding_dropout", 0.0)?,
        attention_dropout: fields.number("attention_dropout", 0.0)?,
        init: Init::Normal {
            std: fields.number("initializer_range", 0.02)?,
            scale_residual: true,
        },
        ..EncoderSettings::new(d_model, heads)
    })
}

fn style(fields: &Fields<'_>, _: &EncoderSettings) -> Result<HeadStyle, HuggingFaceError> {
    let activation = activation(fields, "classifier_activation", Activation::Gelu)?;
    Ok(HeadStyle {
        masked_lm: activation,
        classifier: PooledActivation::Other(activation),
        pooling: match fields.optional_text("classifier_pooling")? {
            None | Some("cls") => Pooling::First,
            Some("mean") => Pooling::Mean,
            Some(_) => return Err(fields.error("classifier_pooling", "must be cls or mean")),
        },
        dense_bias: fields.flag("classifier_bias", false)?,
        logit_bias: fields.flag("decoder_bias", true)?,
        normed: true,
    })
}

fn write(settings: &EncoderSettings) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    let window = settings.window.as_ref();
    let slides = |layer| window.is_some_and(|window| !window.full_layers.contains(layer));
    let layer_types: Vec<_> = (0..settings.n_layers)
        .map(|layer| type_name(slides(layer)))
        .collect();
    set("vocab_size", json!(settings.vocab_size));
    set("max_position_embeddings", json!(settings.positions));
    set("hidden_size", json!(settings.d_model));
    set("num_hidden_layers", json!(settings.n_layers));
    set("num_attention_heads", json!(settings.heads));
    set("intermediate_size", json!(settings.feed_forward.width));
    let activation = activation_name(settings.feed_forward.activation);
    set("hidden_activation", json!(activation));
    set("layer_types", json!(layer_types));
    let distance = window.map_or(64, |window| window.distance);
    set("local_attention", json!(distance.saturating_mul(2)));
    if let Position::Rotary { base, scaling, .. } = &settings.position {
        let full: Option<&LayerPositions> = settings.layer_positions.as_ref();
        set("rope_parameters", written_kinds(*base, scaling, full));
    }
    let has_bias = matches!(settings.norm, Norm::Layer { bias: true, .. });
    set("norm_bias", json!(has_bias));
    set("norm_eps", json!(settings.norm.epsilon()));
    set("attention_bias", json!(settings.bias.qkv));
    set("mlp_bias", json!(settings.bias.feed_forward));
    for name in ["embedding_dropout", "mlp_dropout", "classifier_dropout"] {
        set(name, json!(settings.dropout));
    }
    set("attention_dropout", json!(settings.attention_dropout));
    set("initializer_range", initializer_range(settings.init));
    write_head(settings.head.as_ref(), &mut fields);
    fields
}

/// Writes the fields that [`style`] reads. A model without a head keeps those of its file.
fn write_head(head: Option<&EncoderHeadConfig>, fields: &mut Map<String, Value>) {
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    let pooled_name = |activation: &PooledActivation| match activation {
        PooledActivation::Tanh => Value::Null,
        PooledActivation::Other(activation) => json!(activation_name(*activation)),
    };
    match head {
        None | Some(EncoderHeadConfig::Pooler | EncoderHeadConfig::Token { layer: None, .. }) => {}
        Some(EncoderHeadConfig::MaskedLm {
            activation,
            dense_bias,
            bias,
        }) => {
            set("classifier_activation", json!(activation_name(*activation)));
            set("classifier_bias", json!(dense_bias));
            set("decoder_bias", json!(bias));
        }
        Some(EncoderHeadConfig::Sequence {
            activation,
            pooling,
            dense_bias,
            ..
        }) => {
            set("classifier_activation", pooled_name(activation));
            set("classifier_bias", json!(dense_bias));
            let pooling = match pooling {
                Pooling::Mean => "mean",
                _ => "cls",
            };
            set("classifier_pooling", json!(pooling));
        }
        Some(EncoderHeadConfig::Token {
            layer: Some(TokenLayer { activation, bias }),
            ..
        }) => {
            set("classifier_activation", pooled_name(activation));
            set("classifier_bias", json!(bias));
        }
    }
}

const NAMES: &[TensorName] = &[
    as_is("tokens", "model.embeddings.tok_embeddings.weight"),
    as_is("norm_embedding", "model.embeddings.norm"),
    as_is("norm_final", "model.final_norm"),
    // The first block has none.
    as_is("blocks.*.norm1", "model.layers.*.attn_norm"),
    // Queries, keys and values in this order, as here.
    linear("blocks.*.attention.qkv", "model.layers.*.attn.Wqkv"),
    linear("blocks.*.attention.out", "model.layers.*.attn.Wo"),
    as_is("blocks.*.norm2", "model.layers.*.mlp_norm"),
    part_of(
        "blocks.*.feed_forward.gate",
        "model.layers.*.mlp.Wi",
        [0, 2],
    ),
    part_of("blocks.*.feed_forward.up", "model.layers.*.mlp.Wi", [1, 2]),
    linear("blocks.*.feed_forward.down", "model.layers.*.mlp.Wo"),
];
