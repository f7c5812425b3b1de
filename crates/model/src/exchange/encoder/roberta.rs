//! RoBERTa (Liu et al. 2019, [1907.11692](https://arxiv.org/abs/1907.11692)) and XLM-RoBERTa (Conneau et al. 2019,
//! [1911.02116](https://arxiv.org/abs/1911.02116)).
//!
//! BERT with one segment, whose positions start at row `pad_token_id + 1` of the position table. ε 1e-5 in published
//! models, 1e-12 where a `config.json` has none.

use emberlm_kernels::Activation;
use serde_json::{Map, Value, json};

use super::bert;
use super::{EncoderExchange, HeadNames, HeadStyle};
use crate::error::HuggingFaceError;
use crate::exchange::fields::Fields;
use crate::transformer::encoder::{EncoderSettings, PooledActivation};
use crate::weights::names::{TensorName, as_is, linear, query_key_value};

pub(crate) const EXCHANGE: EncoderExchange = EncoderExchange {
    model_type: "roberta",
    class: "Roberta",
    prefix: "roberta.",
    names: NAMES,
    heads: HeadNames {
        pooler: Some(&[linear("head.dense", "roberta.pooler.dense")]),
        masked_lm: &[
            linear("head.dense", "lm_head.dense"),
            as_is("head.norm", "lm_head.layer_norm"),
            as_is("head.bias", "lm_head.bias"),
        ],
        tied: &[
            (
                "lm_head.decoder.weight",
                "roberta.embeddings.word_embeddings.weight",
            ),
            ("lm_head.decoder.bias", "lm_head.bias"),
        ],
        sequence: &[
            linear("head.dense", "classifier.dense"),
            linear("head.out", "classifier.out_proj"),
        ],
        token: &[linear("head.out", "classifier")],
    },
    read,
    write,
    style: |_, _| Ok(HeadStyle::bert(Activation::Gelu, PooledActivation::Tanh)),
};

pub(crate) const XLM_EXCHANGE: EncoderExchange = EncoderExchange {
    model_type: "xlm-roberta",
    class: "XLMRoberta",
    ..EXCHANGE
};

fn read(fields: &Fields<'_>) -> Result<EncoderSettings, HuggingFaceError> {
    Ok(EncoderSettings {
        first_position: fields.count("pad_token_id", 1)? + 1,
        ..bert::read(fields, 512, 1e-12, 2)?
    })
}

fn write(settings: &EncoderSettings) -> Map<String, Value> {
    let mut fields = bert::write(settings);
    let padding = settings.first_position.checked_sub(1);
    fields.insert("pad_token_id".to_owned(), json!(padding));
    fields
}

const NAMES: &[TensorName] = &[
    as_is("tokens", "roberta.embeddings.word_embeddings.weight"),
    as_is("positions", "roberta.embeddings.position_embeddings"),
    as_is(
        "segments",
        "roberta.embeddings.token_type_embeddings.weight",
    ),
    as_is("norm_embedding", "roberta.embeddings.LayerNorm"),
    query_key_value(
        "blocks.*.attention.qkv",
        [
            "roberta.encoder.layer.*.attention.self.query",
            "roberta.encoder.layer.*.attention.self.key",
            "roberta.encoder.layer.*.attention.self.value",
        ],
    ),
    linear(
        "blocks.*.attention.out",
        "roberta.encoder.layer.*.attention.output.dense",
    ),
    as_is(
        "blocks.*.norm1",
        "roberta.encoder.layer.*.attention.output.LayerNorm",
    ),
    linear(
        "blocks.*.feed_forward.up",
        "roberta.encoder.layer.*.intermediate.dense",
    ),
    linear(
        "blocks.*.feed_forward.down",
        "roberta.encoder.layer.*.output.dense",
    ),
    as_is("blocks.*.norm2", "roberta.encoder.layer.*.output.LayerNorm"),
];
