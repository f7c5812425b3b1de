//! Converts SentencePiece `.model` files to a `tokenizer.json`: Unigram and byte-pair models, with or without
//! byte fallback.
//!
//! The file is a protocol buffer (`sentencepiece_model.proto`). Its fields map as follows:
//!
//! | model | `tokenizer.json` |
//! |---|---|
//! | `precompiled_charsmap` | the normalizer Precompiled |
//! | `remove_extra_whitespaces` | Replace: collapses runs of spaces and trims both ends |
//! | `add_dummy_prefix` | the normalizer Prepend |
//! | spaces | `▁`. A text is one piece, since tokens may contain several words |
//! | scores of a Unigram model | scores |
//! | scores of byte pairs | merges: every way to form a token from two others, the highest score first |
//!
//! Models with features that a `tokenizer.json` cannot represent exactly are rejected.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use serde_json::{Value, json};

use crate::TokenizerError;

/// The character that represents a space.
const SPACE_MARK: &str = "\u{2581}";

/// A model.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ModelProto {
    #[prost(message, repeated, tag = "1")]
    pub(crate) pieces: Vec<SentencePiece>,
    #[prost(message, optional, tag = "2")]
    pub(crate) trainer: Option<TrainerSpec>,
    #[prost(message, optional, tag = "3")]
    pub(crate) normalizer: Option<NormalizerSpec>,
    #[prost(message, optional, tag = "5")]
    pub(crate) denormalizer: Option<NormalizerSpec>,
}

/// A token.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SentencePiece {
    #[prost(string, optional, tag = "1")]
    pub(crate) piece: Option<String>,
    #[prost(float, optional, tag = "2")]
    pub(crate) score: Option<f32>,
    #[prost(int32, optional, tag = "3", default = "1")]
    pub(crate) kind: Option<i32>,
}

/// Settings of the training that matter for encoding.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TrainerSpec {
    #[prost(int32, optional, tag = "3", default = "1")]
    pub(crate) model_type: Option<i32>,
    #[prost(bool, optional, tag = "24")]
    pub(crate) treat_whitespace_as_suffix: Option<bool>,
    #[prost(bool, optional, tag = "35")]
    pub(crate) byte_fallback: Option<bool>,
    #[prost(int32, optional, tag = "42", default = "2")]
    pub(crate) eos_id: Option<i32>,
}

/// Changes to a text before it is split.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct NormalizerSpec {
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(crate) precompiled_charsmap: Option<Vec<u8>>,
    #[prost(bool, optional, tag = "3", default = "true")]
    pub(crate) add_dummy_prefix: Option<bool>,
    #[prost(bool, optional, tag = "4", default = "true")]
    pub(crate) remove_extra_whitespaces: Option<bool>,
    #[prost(bool, optional, tag = "5", default = "true")]
    pub(crate) escape_whitespaces: Option<bool>,
}

/// Values of `SentencePiece.type`.
mod kind {
    pub(super) const NORMAL: i32 = 1;
    pub(super) const UNKNOWN: i32 = 2;
    pub(super) const CONTROL: i32 = 3;
    pub(super) const USER_DEFINED: i32 = 4;
    pub(super) const UNUSED: i32 = 5;
    pub(super) const BYTE: i32 = 6;
}

/// Values of `TrainerSpec.model_type`.
pub(crate) mod model_type {
    pub(crate) const UNIGRAM: i32 = 1;
    pub(crate) const BPE: i32 = 2;
}

/// Converts a SentencePiece model. Returns the `tokenizer.json` and the end-of-text id, if the model specifies
/// one.
pub(crate) fn to_json(bytes: &[u8]) -> Result<(Vec<u8>, Option<u32>), TokenizerError> {
    convert(bytes).map_err(|reason| TokenizerError::SentencePiece { reason })
}

fn convert(bytes: &[u8]) -> Result<(Vec<u8>, Option<u32>), String> {
    let proto = ModelProto::decode(bytes).map_err(|error| format!("it is damaged: {error}"))?;
    let inexact = |(id, piece): (usize, &SentencePiece)| match piece.kind() {
        kind::USER_DEFINED => Some((id, piece.piece().to_owned(), "user-defined")),
        kind::UNUSED => Some((id, piece.piece().to_owned(), "unused")),
        _ => None,
    };
    if let Some((id, name, kind)) = proto.pieces.iter().enumerate().find_map(inexact) {
        return Err(format!(
            "piece {id} ({name:?}) is {kind}, which a tokenizer.json cannot express exactly"
        ));
    }
    let file = to_value(&proto)?;
    let mut json = serde_json::to_vec_pretty(&file).map_err(|error| error.to_string())?;
    json.push(b'\n');
    let end = u32::try_from(proto.trainer.unwrap_or_default().eos_id()).ok();
    let end = end.filter(|id| {
        let piece = proto.pieces.get(*id as usize);
        piece.is_some_and(|piece| piece.kind() == kind::CONTROL)
    });
    Ok((json, end))
}

/// Builds the `tokenizer.json` of a model. User-defined pieces are found in a text before it is split, in contrast to
/// SentencePiece, and unused pieces never occur.
pub(crate) fn to_value(proto: &ModelProto) -> Result<Value, String> {
    let trainer = proto.trainer.clone().unwrap_or_default();
    let normalizer = proto.normalizer.clone().unwrap_or_default();
    check(proto, &trainer, &normalizer)?;
    let unknown = proto
        .pieces
        .iter()
        .position(|piece| piece.kind() == kind::UNKNOWN);
    let unknown = unknown.ok_or("it has no piece for what is unknown")?;
    let byte_fallback = trainer.byte_fallback();
    let model = match trainer.model_type() {
        model_type::BPE => json!({
            "type": "BPE", "dropout": null, "unk_token": proto.pieces[unknown].piece(),
            "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": true, "byte_fallback": byte_fallback, "ignore_merges": false,
            "vocab": proto.pieces.iter().map(SentencePiece::piece).zip(0..).collect::<HashMap<&str, u32>>(),
            "merges": merges(&proto.pieces),
        }),
        _ => {
            let vocab = proto
                .pieces
                .iter()
                .map(|piece| (piece.piece(), piece.score()));
            json!({
                "type": "Unigram", "unk_id": unknown, "byte_fallback": byte_fallback,
                "vocab": vocab.collect::<Vec<_>>(),
            })
        }
    };
    let added = [kind::UNKNOWN, kind::CONTROL, kind::USER_DEFINED];
    let special = proto.pieces.iter().zip(0_u32..);
    let special = special.filter(|(piece, _)| added.contains(&piece.kind()));
    let special = special.map(|(piece, id)| {
        json!({
            "id": id, "content": piece.piece(), "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": piece.kind() != kind::USER_DEFINED,
        })
    });
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": special.collect::<Vec<_>>(),
        "normalizer": {"type": "Sequence", "normalizers": normalizers(&normalizer)},
        "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": decoders(&normalizer)},
        "model": model,
    }))
}

/// Rejects features that would change the ids.
fn check(
    proto: &ModelProto,
    trainer: &TrainerSpec,
    normalizer: &NormalizerSpec,
) -> Result<(), String> {
    if proto.pieces.is_empty() {
        return Err("it has no pieces".to_owned());
    }
    let mut seen = HashMap::new();
    for (piece, id) in proto.pieces.iter().zip(0..) {
        let name = piece.piece();
        if name.is_empty() {
            return Err(format!("piece {id} is empty"));
        }
        if let Some(first) = seen.insert(name, id) {
            return Err(format!("pieces {first} and {id} are both {name:?}"));
        }
        if !piece.score().is_finite() {
            return Err(format!(
                "the score of piece {id} ({name:?}) is not a number"
            ));
        }
        if !(kind::NORMAL..=kind::BYTE).contains(&piece.kind()) {
            return Err(format!("piece {id} ({name:?}) is of an unknown type"));
        }
    }
    let model_type = trainer.model_type();
    if ![model_type::UNIGRAM, model_type::BPE].contains(&model_type) {
        return Err(format!(
            "`model_type` is {model_type}: only 1 (Unigram) and 2 (byte pairs) are supported"
        ));
    }
    if trainer.treat_whitespace_as_suffix() {
        return Err("`treat_whitespace_as_suffix` is not supported".to_owned());
    }
    if !normalizer.escape_whitespaces() {
        return Err("`escape_whitespaces` must be true".to_owned());
    }
    let after = proto
        .denormalizer
        .as_ref()
        .map(NormalizerSpec::precompiled_charsmap);
    if after.is_some_and(|map| !map.is_empty()) {
        return Err("a denormalizer is not supported".to_owned());
    }
    Ok(())
}

fn normalizers(spec: &NormalizerSpec) -> Vec<Value> {
    let replace = |pattern: Value, content: &str| json!({"type": "Replace", "pattern": pattern, "content": content});
    let mut steps = Vec::new();
    if !spec.precompiled_charsmap().is_empty() {
        let map = STANDARD.encode(spec.precompiled_charsmap());
        steps.push(json!({"type": "Precompiled", "precompiled_charsmap": map}));
    }
    if spec.remove_extra_whitespaces() {
        // SentencePiece treats a literal `▁` as a space at the end of a text, but not elsewhere.
        steps.push(replace(json!({"Regex": r"\A +"}), ""));
        steps.push(replace(json!({"Regex": "[ \u{2581}]+\\z"}), ""));
        steps.push(replace(json!({"Regex": " {2,}"}), " "));
    }
    if spec.add_dummy_prefix() {
        steps.push(json!({"type": "Prepend", "prepend": SPACE_MARK}));
    }
    steps.push(replace(json!({"String": " "}), SPACE_MARK));
    steps
}

fn decoders(spec: &NormalizerSpec) -> Vec<Value> {
    let mut steps = vec![
        json!({"type": "Replace", "pattern": {"String": SPACE_MARK}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if spec.add_dummy_prefix() {
        steps.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    steps
}

/// Returns every way to form a piece from two others, the piece with the highest score first. Ties are ordered
/// by the ids of the two parts.
fn merges(pieces: &[SentencePiece]) -> Vec<(&str, &str)> {
    let normal = |(piece, _): &(&SentencePiece, u32)| piece.kind() == kind::NORMAL;
    let normal: Vec<_> = pieces.iter().zip(0..).filter(normal).collect();
    let ids: HashMap<&str, u32> = normal
        .iter()
        .map(|(piece, id)| (piece.piece(), *id))
        .collect();
    let mut merges = Vec::new();
    for (made, _) in &normal {
        let whole = made.piece();
        for (at, _) in whole.char_indices().skip(1) {
            let (left, right) = whole.split_at(at);
            if let (Some(one), Some(two)) = (ids.get(left), ids.get(right)) {
                merges.push((made.score(), (*one, *two), (left, right)));
            }
        }
    }
    merges.sort_by(|one, two| two.0.total_cmp(&one.0).then(one.1.cmp(&two.1)));
    merges.into_iter().map(|(_, _, parts)| parts).collect()
}
