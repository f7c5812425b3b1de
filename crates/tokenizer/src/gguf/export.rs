//! A tokenizer as the metadata of a GGUF file.
//!
//! The `tokenizer.json` is the source. Byte-level byte pairs become the vocabulary `gpt2`, SentencePiece's byte pairs the
//! vocabulary `llama`. Other tokenizers are rejected, because llama.cpp would split texts in another way.

mod byte_pairs;
mod pieces;

use std::collections::HashMap;

use emberlm_gguf::{Array, Value};
use serde_json::{Map, Value as Json};

use super::{ENDS, MODEL, SPECIAL, TEMPLATE, TEMPLATE_NAMES, TOKEN_TYPES, TOKENS, token_type};
use crate::{Tokenizer, TokenizerError};

/// Settings of a model that the metadata of its tokenizer include.
#[derive(Clone, Debug)]
pub struct GgufTokenizerOptions<'a> {
    /// The fields of `tokenizer_config.json`.
    pub config: &'a Map<String, Json>,
    /// The tokens that end an answer.
    pub ends: &'a [u32],
    /// The chat template.
    pub template: Option<&'a str>,
    /// Rows of the embedding. Ids that the tokenizer lacks get the name `[PADn]`.
    pub vocab_size: usize,
}

/// The metadata of a tokenizer.
#[derive(Clone, Debug, PartialEq)]
pub struct GgufVocabulary {
    /// Keys and values.
    pub metadata: Vec<(String, Value)>,
    /// A difference between the tokenizer and the one that llama.cpp makes of the metadata.
    pub difference: Option<&'static str>,
}

/// The keys of one type of vocabulary.
struct Vocabulary {
    model: &'static str,
    kinds: Vec<i32>,
    metadata: Vec<(&'static str, Value)>,
    difference: Option<&'static str>,
}

impl GgufVocabulary {
    /// Converts a tokenizer.
    ///
    /// # Errors
    /// GGUF cannot express the tokenizer, or it has more ids than `vocab_size`.
    pub fn of(
        tokenizer: &Tokenizer,
        options: &GgufTokenizerOptions<'_>,
    ) -> Result<Self, TokenizerError> {
        convert(tokenizer, options).map_err(|reason| TokenizerError::NotInGguf { reason })
    }
}

fn convert(
    tokenizer: &Tokenizer,
    options: &GgufTokenizerOptions<'_>,
) -> Result<GgufVocabulary, String> {
    let json = tokenizer.to_tokenizer_json();
    let file: Json = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
    let model = &file["model"];
    // Files without a type are byte pairs.
    let kind = model["type"].as_str().unwrap_or("BPE");
    if kind != "BPE" {
        return Err(format!("its model is {kind}, not byte pairs"));
    }
    let texts = texts(&file, options.vocab_size)?;
    let vocabulary = match byte_pairs::spells_bytes(&file) {
        true => byte_pairs::vocabulary(&file, &texts)?,
        false => pieces::vocabulary(&file, &texts)?,
    };
    let mut metadata: Vec<(String, Value)> = Vec::new();
    let mut set = |key: &str, value: Value| metadata.push((key.to_owned(), value));
    set(MODEL, Value::String(vocabulary.model.to_owned()));
    let ids: HashMap<&str, u32> = texts.iter().map(String::as_str).zip(0..).collect();
    for (key, value) in vocabulary.metadata {
        set(key, value);
    }
    let special = special_ids(tokenizer, &file, options, &ids);
    for (key, id) in special {
        set(key, Value::U32(id));
    }
    let (begins, ends) = added_by_template(&file["post_processor"], options.config);
    set(
        "tokenizer.ggml.add_bos_token",
        Value::Bool(begins.is_some()),
    );
    set("tokenizer.ggml.add_eos_token", Value::Bool(ends));
    if let Some(template) = options.template {
        set(TEMPLATE, Value::String(template.to_owned()));
    }
    let named = named_templates(options.config);
    if !named.is_empty() {
        let names = named.iter().map(|(name, _)| (*name).to_owned()).collect();
        set(TEMPLATE_NAMES, Value::Array(Array::String(names)));
    }
    for (name, template) in named {
        set(
            &format!("{TEMPLATE}.{name}"),
            Value::String(template.to_owned()),
        );
    }
    set(TOKEN_TYPES, Value::Array(Array::I32(vocabulary.kinds)));
    set(TOKENS, Value::Array(Array::String(texts)));
    Ok(GgufVocabulary {
        metadata,
        difference: vocabulary.difference,
    })
}

/// The additional chat templates in a `tokenizer_config.json`.
fn named_templates(config: &Map<String, Json>) -> Vec<(&str, &str)> {
    let templates = config.get("chat_template").and_then(Json::as_array);
    let templates = templates.into_iter().flatten().filter_map(|template| {
        let name = template["name"]
            .as_str()
            .filter(|name| *name != "default")?;
        Some((name, template["template"].as_str()?))
    });
    templates.collect()
}

/// The names of all ids.
fn texts(file: &Json, vocab_size: usize) -> Result<Vec<String>, String> {
    let vocab = file["model"]["vocab"].as_object();
    let vocab = vocab.ok_or("its vocabulary is not a list of tokens with ids")?;
    let vocab = vocab
        .iter()
        .filter_map(|(text, id)| Some((text.as_str(), id.as_u64()?)));
    let added = added(file).filter_map(|token| {
        let text = token["content"].as_str()?;
        Some((text, token["id"].as_u64()?))
    });
    let mut texts: Vec<Option<String>> = vec![None; vocab_size];
    for (text, id) in vocab.chain(added) {
        let place = usize::try_from(id).ok().and_then(|id| texts.get_mut(id));
        let place = place.ok_or_else(|| {
            format!("its token {id} is beyond the model's vocabulary of {vocab_size}")
        })?;
        *place = Some(text.to_owned());
    }
    let named = texts.into_iter().enumerate();
    Ok(named
        .map(|(id, text)| text.unwrap_or_else(|| unused(id)))
        .collect())
}

/// The name of an id that no token has.
fn unused(id: usize) -> String {
    format!("[PAD{id}]")
}

/// The added tokens.
fn added(file: &Json) -> impl Iterator<Item = &Json> {
    file["added_tokens"].as_array().into_iter().flatten()
}

/// The types of tokens that are not found by merging: those added, and ids without a token. Others are `normal`.
fn kinds(file: &Json, texts: &[String], normal: impl Fn(&str) -> i64) -> Vec<i32> {
    let vocab = &file["model"]["vocab"];
    let mut kinds: Vec<i64> = texts
        .iter()
        .map(|text| match vocab.get(text) {
            Some(_) => normal(text),
            None => token_type::UNUSED,
        })
        .collect();
    for token in added(file) {
        let id = token["id"].as_u64().and_then(|id| usize::try_from(id).ok());
        let is_special = token["special"].as_bool() == Some(true);
        let kind = match is_special {
            true => token_type::CONTROL,
            false => token_type::USER_DEFINED,
        };
        if let Some(place) = id.and_then(|id| kinds.get_mut(id)) {
            *place = kind;
        }
    }
    kinds
        .into_iter()
        .map(|kind| i32::try_from(kind).unwrap_or_default())
        .collect()
}

/// The keys of special tokens and the tokens that end an answer.
fn special_ids(
    tokenizer: &Tokenizer,
    file: &Json,
    options: &GgufTokenizerOptions<'_>,
    ids: &HashMap<&str, u32>,
) -> Vec<(&'static str, u32)> {
    let mut found: Vec<(&'static str, u32)> = Vec::new();
    for (key, field) in SPECIAL {
        let name = match &options.config.get(field) {
            Some(Json::Object(token)) => token.get("content").and_then(Json::as_str),
            Some(name) => name.as_str(),
            None => None,
        };
        if let Some(id) = name.and_then(|name| ids.get(name)) {
            found.push((key, *id));
        }
    }
    let set = |found: &mut Vec<(&'static str, u32)>, key: &'static str, id: u32| {
        found.retain(|(other, _)| *other != key);
        found.push((key, id));
    };
    if let Some(end) = tokenizer.end_of_text() {
        set(&mut found, ENDS[0], end);
    }
    let (begins, _) = added_by_template(&file["post_processor"], options.config);
    if let Some(begin) = begins.flatten().and_then(|name| ids.get(name)) {
        set(&mut found, SPECIAL[0].0, *begin);
    }
    let unknown = file["model"]["unk_token"].as_str();
    if let Some(unknown) = unknown.and_then(|name| ids.get(name)) {
        set(&mut found, SPECIAL[2].0, *unknown);
    }
    let end = found.iter().find(|(key, _)| *key == ENDS[0]);
    let end = end.map(|(_, id)| *id);
    let others = options.ends.iter().filter(|id| Some(**id) != end);
    let others: Vec<u32> = others.copied().collect();
    for (key, id) in ENDS
        .into_iter()
        .skip(usize::from(end.is_some()))
        .zip(others)
    {
        found.push((key, id));
    }
    found
}

/// The token that begins a text, and true if a token ends it. The beginning is `Some(None)` if it has no name.
fn added_by_template<'a>(
    processor: &'a Json,
    config: &Map<String, Json>,
) -> (Option<Option<&'a str>>, bool) {
    let nested = processor["processors"].as_array().into_iter().flatten();
    let mut all = std::iter::once(processor).chain(nested);
    let template = all.find(|step| step["type"] == "TemplateProcessing");
    let Some(steps) = template.and_then(|template| template["single"].as_array()) else {
        let flag = |name: &str| config.get(name).and_then(Json::as_bool) == Some(true);
        return (flag("add_bos_token").then_some(None), flag("add_eos_token"));
    };
    let name = |step: Option<&'a Json>| step.and_then(|step| step["SpecialToken"]["id"].as_str());
    (name(steps.first()).map(Some), name(steps.last()).is_some())
}
