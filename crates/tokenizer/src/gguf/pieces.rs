//! SentencePiece vocabularies.

use emberlm_gguf::{Array, GgufError, Metadata, Value as GgufValue};
use serde_json::Value;

use super::{TOKENS, Token, post_processor, token_type};
use crate::sentence_piece::{self, ModelProto, NormalizerSpec, SentencePiece, TrainerSpec};

pub(super) const SCORES: &str = "tokenizer.ggml.scores";
const CHARSMAP: &str = "tokenizer.ggml.precompiled_charsmap";

/// Builds the `tokenizer.json`, by way of the SentencePiece model that the file was converted from.
pub(super) fn file(
    metadata: &Metadata,
    tokens: &[Token<'_>],
    unigram: bool,
) -> Result<Value, GgufError> {
    let scores = metadata.numbers(SCORES)?.unwrap_or_default();
    if scores.len() != tokens.len() {
        let rule = format!("must have a number for each of the {} tokens", tokens.len());
        return Err(metadata.error(SCORES, rule));
    }
    let pieces = tokens.iter().zip(scores);
    let pieces = pieces.map(|(token, score)| SentencePiece {
        piece: Some(token.text.to_owned()),
        score: Some(score as f32),
        kind: i32::try_from(token.kind).ok(),
    });
    let charsmap = match metadata.get(CHARSMAP) {
        None => None,
        Some(GgufValue::Array(Array::U8(bytes))) => Some(bytes.clone()),
        Some(GgufValue::Array(Array::I8(bytes))) => {
            Some(bytes.iter().map(|byte| byte.cast_unsigned()).collect())
        }
        Some(_) => return Err(metadata.error(CHARSMAP, "must be a list of bytes")),
    };
    let flag = |name: &str| metadata.flag(&format!("tokenizer.ggml.{name}"));
    let proto = ModelProto {
        pieces: pieces.collect(),
        trainer: Some(TrainerSpec {
            model_type: Some(match unigram {
                true => sentence_piece::model_type::UNIGRAM,
                false => sentence_piece::model_type::BPE,
            }),
            byte_fallback: Some(tokens.iter().any(|token| token.kind == token_type::BYTE)),
            ..TrainerSpec::default()
        }),
        normalizer: Some(NormalizerSpec {
            precompiled_charsmap: charsmap,
            add_dummy_prefix: Some(flag("add_space_prefix")?.unwrap_or(true)),
            remove_extra_whitespaces: Some(flag("remove_extra_whitespaces")?.unwrap_or(false)),
            ..NormalizerSpec::default()
        }),
        denormalizer: None,
    };
    let file = sentence_piece::to_value(&proto);
    let mut file = file.map_err(|rule| metadata.error(TOKENS, rule))?;
    file["post_processor"] = post_processor(metadata, tokens, !unigram)?;
    Ok(file)
}
