//! T5 (Raffel et al. 2020, [1910.10683](https://arxiv.org/abs/1910.10683)), T5 v1.1 and Flan-T5 (Chung et al. 2022,
//! [2210.11416](https://arxiv.org/abs/2210.11416)), and mT5 (Xue et al. 2021,
//! [2010.11934](https://arxiv.org/abs/2010.11934)).
//!
//! ```text
//! x = E[token]
//! x = x + Wo · softmax(q kᵀ + bias[bucket(j - i)]) v                q, k, v = W · rms(x); no factor on the scores
//! x = x + Wo · softmax(q kᵀ) v                     in the decoder   q = W · rms(x); k, v = W · the encoder's states
//! x = x + W₂ · relu(W₁ · rms(x))                   v1.0             v1.1 and mT5: W₂ · (gelu(W₁ · rms(x)) ∘ W₃ · rms(x))
//! logits = E · rms(x) / √d                         v1.0             v1.1 and mT5: H · rms(x)
//! ```
//!
//! GELU by tanh; no biases. The first block of each stack stores the biases of all of its blocks.

use emberlm_kernels::Activation;
use serde_json::{Map, Value, json};

use crate::config::{FeedForward, FeedForwardKind, Head, ModelConfig, Norm};
use crate::error::{HuggingFaceError, WeightsError};
use crate::exchange::fields::Fields;
use crate::exchange::names::{activation, activation_name, activation_named};
use crate::exchange::{FileFacts, ModelType, ReadFacts, quantization};
use crate::transformer::checked::TransformerConfig;
use crate::transformer::encoder_decoder::{EncoderDecoderSettings, RelativePositions};
use crate::weights::map::Source;
use crate::weights::names::block_path;
use crate::weights::{SafetensorsStore, TensorStore, equal};

/// The tensor of the token embedding.
const EMBEDDING: &str = "shared.weight";
/// The tensor of an untied head.
const HEAD: &str = "lm_head.weight";
/// Copies of the embedding that files may have.
const EMBEDDING_COPIES: [(&str, &str); 2] = [
    ("encoder.embed_tokens.weight", EMBEDDING),
    ("decoder.embed_tokens.weight", EMBEDDING),
];

/// One model type in `transformers`.
#[derive(Debug)]
pub(crate) struct T5 {
    /// The value of `model_type`.
    model_type: &'static str,
    /// Beginning of the names of `transformers`' classes.
    class: &'static str,
    vocab_size: usize,
    width: usize,
    layers: usize,
    heads: usize,
    feed_forward: &'static str,
    /// True if logits can be multiplied by 1/√d_model.
    scales: bool,
}

/// T5, all versions.
pub(crate) const T5: T5 = T5 {
    model_type: "t5",
    class: "T5",
    vocab_size: 32_128,
    width: 2048,
    layers: 6,
    heads: 8,
    feed_forward: "relu",
    scales: true,
};

/// mT5.
pub(crate) const MT5: T5 = T5 {
    model_type: "mt5",
    class: "MT5",
    vocab_size: 250_112,
    width: 1024,
    layers: 8,
    heads: 6,
    feed_forward: "gated-gelu",
    scales: false,
};

impl T5 {
    /// The class of the model with its head.
    fn architecture(&self) -> String {
        format!("{}ForConditionalGeneration", self.class)
    }

    /// Builds the settings from a `config.json`. Whether the head is tied follows from the tensors: newer versions of
    /// `transformers` write `"tie_word_embeddings": true` for all models.
    fn settings(
        &self,
        fields: &Fields<'_>,
        tied: bool,
    ) -> Result<EncoderDecoderSettings, HuggingFaceError> {
        self.check_class(fields)?;
        fields.only(
            "is_encoder_decoder",
            true,
            "only whole encoder–decoders are supported",
        )?;
        fields.only(
            "is_decoder",
            false,
            "only whole encoder–decoders are supported",
        )?;
        fields.refuse(
            quantization::FIELD,
            "quantized encoder–decoders are not supported",
        )?;
        let layers = fields.size_by_names(["num_hidden_layers", "num_layers"], self.layers)?;
        let padding = fields.count("pad_token_id", 0)?;
        let scaled = fields.flag(
            "scale_decoder_outputs",
            fields.flag("tie_word_embeddings", true)?,
        )?;
        Ok(EncoderDecoderSettings {
            vocab_size: fields.size("vocab_size", self.vocab_size)?,
            encoder_layers: layers,
            decoder_layers: fields.size("num_decoder_layers", layers)?,
            head_dim: fields.size_by_names(["head_dim", "d_kv"], 64)?,
            relative_positions: RelativePositions {
                buckets: fields.size("relative_attention_num_buckets", 32)?,
                max_distance: fields.size("relative_attention_max_distance", 128)?,
            },
            feed_forward: self
                .feed_forward(fields)?
                .with_width(fields.size("d_ff", self.width)?),
            norm: Norm::Rms {
                epsilon: fields.number("layer_norm_epsilon", 1e-6)?,
            },
            head: Head {
                tied,
                bias: false,
                scaled: scaled && self.scales,
                scale: None,
                soft_cap: None,
            },
            dropout: fields.number("dropout_rate", 0.1)?,
            init_factor: fields.number("initializer_factor", 1.0)?,
            // Files without it are generated from with the padding token.
            start_token: fields.count("decoder_start_token_id", padding)? as u32,
            padding_token: padding as u32,
            ..EncoderDecoderSettings::new(
                fields.size_by_names(["hidden_size", "d_model"], 512)?,
                fields.size_by_names(["num_attention_heads", "num_heads"], self.heads)?,
            )
        })
    }

    fn check_class(&self, fields: &Fields<'_>) -> Result<(), HuggingFaceError> {
        let classes = fields.optional_texts("architectures")?.unwrap_or_default();
        let whole = self.architecture();
        // The name of the class in the first releases.
        let early = format!("{}WithLMHeadModel", self.class);
        match classes.first() {
            Some(&class) if class != whole && class != early => {
                Err(fields.error("architectures", format!("must be {whole}")))
            }
            _ => Ok(()),
        }
    }

    /// `feed_forward_proj`: an activation, or `gated-` and an activation; `dense_act_fn` overrides the
    /// activation.
    fn feed_forward(&self, fields: &Fields<'_>) -> Result<FeedForward, HuggingFaceError> {
        let field = "feed_forward_proj";
        let name = fields.optional_text(field)?.unwrap_or(self.feed_forward);
        let layer = match name.strip_prefix("gated-") {
            // The tanh form, though the name by itself is the error function's.
            Some("gelu") => Some(FeedForward::gated(Activation::GeluTanh)),
            Some(name) => activation_named(name).map(FeedForward::gated),
            None => activation_named(name).map(FeedForward::dense),
        };
        let rule = "must be an activation such as relu, or gated-gelu or gated-silu";
        let layer = layer.ok_or_else(|| fields.error(field, rule))?;
        Ok(FeedForward {
            activation: activation(fields, "dense_act_fn", layer.activation)?,
            ..layer
        })
    }

    /// The fields that describe a model.
    fn fields(&self, settings: &EncoderDecoderSettings) -> Map<String, Value> {
        let layer = &settings.feed_forward;
        let feed_forward = match (layer.kind, layer.activation) {
            (FeedForwardKind::Dense, activation) => activation_name(activation).to_owned(),
            (FeedForwardKind::Gated, Activation::GeluTanh) => "gated-gelu".to_owned(),
            (FeedForwardKind::Gated, Activation::Gelu) => "gated-gelu_python".to_owned(),
            (FeedForwardKind::Gated, other) => format!("gated-{}", activation_name(other)),
        };
        let mut fields = Map::new();
        let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        set("vocab_size", json!(settings.vocab_size));
        set("d_model", json!(settings.d_model));
        set("d_kv", json!(settings.head_dim));
        set("d_ff", json!(layer.width));
        set("num_layers", json!(settings.encoder_layers));
        set("num_decoder_layers", json!(settings.decoder_layers));
        set("num_heads", json!(settings.heads));
        let positions = settings.relative_positions;
        set("relative_attention_num_buckets", json!(positions.buckets));
        set(
            "relative_attention_max_distance",
            json!(positions.max_distance),
        );
        set("dropout_rate", json!(settings.dropout));
        set("layer_norm_epsilon", json!(settings.norm.epsilon()));
        set("initializer_factor", json!(settings.init_factor));
        set("feed_forward_proj", json!(feed_forward));
        set("is_encoder_decoder", json!(true));
        set("is_decoder", json!(false));
        set("pad_token_id", json!(settings.padding_token));
        set("decoder_start_token_id", json!(settings.start_token));
        set("tie_word_embeddings", json!(settings.head.tied));
        if self.scales {
            set("scale_decoder_outputs", json!(settings.head.scaled));
        }
        fields
    }
}

impl ModelType for &'static T5 {
    fn name(&self) -> &'static str {
        self.model_type
    }

    fn class(&self, _config: &TransformerConfig) -> String {
        self.architecture()
    }

    fn source(&self, config: &TransformerConfig, path: &str) -> Option<Source> {
        source(config, path)
    }

    fn constant(&self, _config: &TransformerConfig) -> Box<dyn Fn(&str) -> bool> {
        // A table that early files have and `transformers` ignores.
        const TABLE: &str =
            "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";
        Box::new(|name| name == TABLE)
    }

    fn tied(&self, config: &TransformerConfig) -> Vec<(&'static str, &'static str)> {
        let tied = config.head().tied.then_some((HEAD, EMBEDDING));
        EMBEDDING_COPIES.into_iter().chain(tied).collect()
    }

    fn facts(&self) -> Option<ReadFacts> {
        Some(|store| {
            Ok(FileFacts {
                untied_head: has_untied_head(store)?,
                ..FileFacts::default()
            })
        })
    }

    fn read(&self, fields: &Fields<'_>, facts: FileFacts) -> Result<ModelConfig, HuggingFaceError> {
        let settings = self.settings(fields, !facts.untied_head)?;
        Ok(TransformerConfig::try_from(settings)?.raw())
    }

    fn write(&self, config: &TransformerConfig, fields: &mut Map<String, Value>) {
        if let Some(settings) = EncoderDecoderSettings::of(config) {
            fields.extend(self.fields(&settings));
        }
    }
}

/// Returns true if the files have a head that differs from the embedding.
fn has_untied_head(store: &SafetensorsStore) -> Result<bool, WeightsError> {
    if !store.contains(HEAD) {
        return Ok(false);
    }
    // A file with a head and without the embedding has the embedding under the head's name.
    let names = [EMBEDDING]
        .into_iter()
        .chain(EMBEDDING_COPIES.map(|(copy, _)| copy));
    let mut embeddings = names.filter(|name| store.contains(name));
    match embeddings.next() {
        Some(embedding) => Ok(!equal(store, HEAD, embedding)?),
        None => Ok(false),
    }
}

/// The tensors of a parameter.
fn source(config: &TransformerConfig, path: &str) -> Option<Source> {
    match path.split_once('.') {
        None if path == "tokens" => Some(Source::as_is(EMBEDDING)),
        None if path == "head" => Some(Source::as_is(HEAD)),
        Some((side @ ("encoder" | "decoder"), rest)) => stack_source(config, side, rest),
        _ => None,
    }
}

fn stack_source(config: &TransformerConfig, side: &str, path: &str) -> Option<Source> {
    let Some((layer, path)) = block_path(path) else {
        let name = match path {
            "norm_final.gain" => "final_layer_norm.weight",
            "relative_bias.weight" => {
                "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
            }
            _ => return None,
        };
        return Some(Source::as_is(format!("{side}.{name}")));
    };
    let named = |sublayer: usize, name: &str| {
        format!("{side}.block.{layer}.layer.{sublayer}.{name}.weight")
    };
    let attention = config.stack().block.attention;
    let feed = if side == "decoder" { 2 } else { 1 };
    let gated = config.feed_forward().kind == FeedForwardKind::Gated;
    let up = if gated { "wi_1" } else { "wi" };
    let linear = |sublayer: usize, name: &str| Source::transposed(named(sublayer, name));
    Some(match path {
        "norm1.gain" => Source::as_is(named(0, "layer_norm")),
        "attention.qkv.weight" => {
            let names = ["q", "k", "v"].map(|part| named(0, &format!("SelfAttention.{part}")));
            Source::query_key_value(&attention, names)
        }
        "attention.out.weight" => linear(0, "SelfAttention.o"),
        "cross.norm.gain" => Source::as_is(named(1, "layer_norm")),
        "cross.attention.q.weight" => linear(1, "EncDecAttention.q"),
        "cross.attention.kv.weight" => {
            let names = ["k", "v"].map(|part| named(1, &format!("EncDecAttention.{part}")));
            Source::key_value(&attention, names)
        }
        "cross.attention.out.weight" => linear(1, "EncDecAttention.o"),
        "norm2.gain" => Source::as_is(named(feed, "layer_norm")),
        "feed_forward.gate.weight" => linear(feed, "DenseReluDense.wi_0"),
        "feed_forward.up.weight" => linear(feed, &format!("DenseReluDense.{up}")),
        "feed_forward.down.weight" => linear(feed, "DenseReluDense.wo"),
        _ => return None,
    })
}
