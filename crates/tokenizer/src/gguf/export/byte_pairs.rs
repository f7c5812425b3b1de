//! Byte-level byte pairs, the vocabulary `gpt2`.

use std::collections::HashMap;

use emberlm_gguf::{Array, Value};
use serde_json::Value as Json;

use super::super::byte_pairs::MERGES;
use super::super::pre_tokenizers::{self, PRE};
use super::super::token_type;
use super::{Vocabulary, kinds};

/// Returns true if the pre-tokenizer of a file spells bytes by characters.
pub(super) fn spells_bytes(file: &Json) -> bool {
    pre_tokenizers::canonical(&file["pre_tokenizer"])
        .is_some_and(|steps| steps.iter().any(|step| step == pre_tokenizers::BYTES))
}

/// Converts a vocabulary.
pub(super) fn vocabulary(file: &Json, texts: &[String]) -> Result<Vocabulary, String> {
    let model = &file["model"];
    let merges = merges(model)?;
    let steps = pre_tokenizers::canonical(&file["pre_tokenizer"]).unwrap_or_default();
    let ignores_merges = model["ignore_merges"].as_bool() == Some(true);
    // If merging finds every token, it does not matter whether a piece that is a token is merged.
    let is_complete = || every_token_is_merged(model, &merges);
    let pre = match merges.is_empty() {
        // Single bytes: the pieces that a text is split into do not matter.
        true => pre_tokenizers::first_name(),
        false => {
            let found =
                pre_tokenizers::written(&file["normalizer"], &steps, ignores_merges, is_complete);
            found.ok_or("llama.cpp has no pre-tokenizer that splits texts in its way")?
        }
    };
    let merges = merges
        .into_iter()
        .map(|(left, right)| format!("{left} {right}"));
    Ok(Vocabulary {
        model: "gpt2",
        kinds: kinds(file, texts, |_| token_type::NORMAL),
        metadata: vec![
            (PRE, Value::String(pre.name.to_owned())),
            (MERGES, Value::Array(Array::String(merges.collect()))),
        ],
        difference: pre.difference,
    })
}

/// The merges, each as two tokens.
pub(super) fn merges(model: &Json) -> Result<Vec<(&str, &str)>, String> {
    let merges = model["merges"].as_array().map(Vec::as_slice);
    let merges: Option<Vec<_>> = merges.unwrap_or_default().iter().map(pair).collect();
    merges.ok_or_else(|| "a merge is not two tokens".to_owned())
}

/// The two tokens of a merge.
fn pair(merge: &Json) -> Option<(&str, &str)> {
    match merge {
        // Tokens contain no spaces but those that are spaces themselves.
        Json::String(merge) => {
            let first = merge.chars().next().map_or(0, char::len_utf8);
            let at = first + merge.get(first..)?.find(' ')?;
            Some((&merge[..at], &merge[at + 1..]))
        }
        Json::Array(pair) => match pair.as_slice() {
            [left, right] => Some((left.as_str()?, right.as_str()?)),
            _ => None,
        },
        _ => None,
    }
}

/// Returns true if merging the characters of each token gives the token.
fn every_token_is_merged(model: &Json, merges: &[(&str, &str)]) -> bool {
    let ranks: HashMap<(&str, &str), usize> = merges.iter().copied().zip(0..).collect();
    let Some(vocab) = model["vocab"].as_object() else {
        return false;
    };
    let made: std::collections::HashSet<String> = merges
        .iter()
        .map(|(left, right)| format!("{left}{right}"))
        .collect();
    // Tokens that no merge makes, such as special ones, are never found in a text in either way.
    let mut tokens = vocab.keys().filter(|token| made.contains(token.as_str()));
    tokens.all(|token| {
        let mut ends: Vec<usize> = token.char_indices().map(|(at, _)| at).collect();
        ends.push(token.len());
        while ends.len() > 2 {
            let pairs = ends.windows(3).enumerate();
            let ranked = pairs.filter_map(|(at, ends)| {
                let pair = (&token[ends[0]..ends[1]], &token[ends[1]..ends[2]]);
                Some((*ranks.get(&pair)?, at + 1))
            });
            match ranked.min() {
                Some((_, middle)) => ends.remove(middle),
                None => return false,
            };
        }
        true
    })
}
