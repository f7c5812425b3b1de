//! SentencePiece's byte pairs, the vocabulary `llama`.

use std::collections::{HashMap, HashSet};

use emberlm_gguf::{Array, Value};
use serde_json::{Value as Json, json};

use super::super::pieces::SCORES;
use super::super::token_type;
use super::{Vocabulary, byte_pairs, kinds};
use crate::sentence_piece::{self, ModelProto, SentencePiece, TrainerSpec};

const SPACE_MARK: &str = "\u{2581}";

/// Converts a vocabulary.
pub(super) fn vocabulary(file: &Json, texts: &[String]) -> Result<Vocabulary, String> {
    let model = &file["model"];
    if model["byte_fallback"].as_bool() != Some(true) {
        return Err("its byte pairs have no bytes to fall back on".to_owned());
    }
    let begins_with_space =
        space_before(file).ok_or("llama.cpp has no pre-tokenizer that splits texts in its way")?;
    let merges = byte_pairs::merges(model)?;
    let unknown = model["unk_token"].as_str().unwrap_or_default();
    let bytes: HashSet<String> = (0..=u8::MAX)
        .map(|byte| format!("<0x{byte:02X}>"))
        .collect();
    let mut kinds = kinds(file, texts, |text| match text {
        text if bytes.contains(text) => token_type::BYTE,
        _ => token_type::NORMAL,
    });
    for (text, kind) in texts.iter().zip(&mut kinds) {
        if text == unknown {
            *kind = token_type::UNKNOWN as i32;
        }
    }
    let scores = scores(texts, &kinds, &merges);
    check_merges(texts, &kinds, &scores, &merges)?;
    Ok(Vocabulary {
        model: "llama",
        metadata: vec![
            ("tokenizer.ggml.pre", Value::String("default".to_owned())),
            (
                "tokenizer.ggml.add_space_prefix",
                Value::Bool(begins_with_space),
            ),
            (SCORES, Value::Array(Array::F32(scores))),
        ],
        kinds,
        difference: None,
    })
}

/// True if a space is added before a text; `None` if the text is changed in another way.
fn space_before(file: &Json) -> Option<bool> {
    let steps = |value: &Json, list: &str| match value {
        Json::Null => Vec::new(),
        value => match value[list].as_array() {
            Some(steps) => steps.clone(),
            None => vec![value.clone()],
        },
    };
    let normalizers = steps(&file["normalizer"], "normalizers");
    let splits = steps(&file["pre_tokenizer"], "pretokenizers");
    let spaces = json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE_MARK});
    let prepend = json!({"type": "Prepend", "prepend": SPACE_MARK});
    let has_marks = match normalizers.as_slice() {
        [] => None,
        [replace] if *replace == spaces => Some(false),
        [first, replace] if *first == prepend && *replace == spaces => Some(true),
        _ => return None,
    };
    match (has_marks, splits.as_slice()) {
        (Some(before), []) => Some(before),
        // After the replacement no space is left to split at.
        (Some(before), [split])
            if split["type"] == "Split" && split["pattern"]["String"] == " " =>
        {
            Some(before)
        }
        (None, [split])
            if split["type"] == "Metaspace"
                && split["replacement"] == SPACE_MARK
                && split["split"] == false =>
        {
            match split["prepend_scheme"].as_str() {
                Some("always" | "first") => Some(true),
                Some("never") => Some(false),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Scores with which the merges have their order: the earlier a token's first merge, the higher its score.
fn scores(texts: &[String], kinds: &[i32], merges: &[(&str, &str)]) -> Vec<f32> {
    let mut ranks: HashMap<String, usize> = HashMap::new();
    for (left, right) in merges {
        let next = ranks.len();
        ranks.entry(format!("{left}{right}")).or_insert(next);
    }
    // Single characters come after all merges, as in SentencePiece.
    let mut next = ranks.len();
    let tokens = texts.iter().zip(kinds);
    tokens
        .map(|(text, &kind)| {
            if i64::from(kind) != token_type::NORMAL {
                return 0.0;
            }
            let rank = ranks.get(text).copied().unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            -(rank as f32)
        })
        .collect()
}

/// Checks that the merges that follow from the scores are those of the file.
fn check_merges(
    texts: &[String],
    kinds: &[i32],
    scores: &[f32],
    merges: &[(&str, &str)],
) -> Result<(), String> {
    let tokens = texts.iter().zip(kinds).zip(scores);
    let pieces = tokens.map(|((text, kind), score)| SentencePiece {
        piece: Some(text.clone()),
        score: Some(*score),
        kind: Some(*kind),
    });
    let proto = ModelProto {
        pieces: pieces.collect(),
        trainer: Some(TrainerSpec {
            model_type: Some(sentence_piece::model_type::BPE),
            byte_fallback: Some(true),
            ..TrainerSpec::default()
        }),
        ..ModelProto::default()
    };
    let rebuilt = sentence_piece::to_value(&proto)?;
    match byte_pairs::merges(&rebuilt["model"])? == merges {
        true => Ok(()),
        false => Err("its merges do not follow from scores of tokens".to_owned()),
    }
}
