//! The tokenizer of a GGUF file, as the files of a Hugging Face directory.
//!
//! | `tokenizer.ggml.model` | model in the `tokenizer.json` |
//! |---|---|
//! | `gpt2` | byte-level byte pairs; `tokenizer.ggml.pre` names the pre-tokenizer |
//! | `llama` | SentencePiece's byte pairs, whose merges follow from the scores |
//! | `t5` | Unigram |
//! | `bert` | WordPiece |

mod byte_pairs;
mod export;
mod keys;
mod pieces;
mod pre_tokenizers;
mod word_pieces;

use emberlm_gguf::{GgufError, Metadata};
use serde_json::{Map, Value, json};

pub use export::{GgufTokenizerOptions, GgufVocabulary};

use self::keys::token_id;
use crate::{Tokenizer, TokenizerError};

/// Key of the type of vocabulary.
const MODEL: &str = "tokenizer.ggml.model";
const TOKENS: &str = "tokenizer.ggml.tokens";
const TOKEN_TYPES: &str = "tokenizer.ggml.token_type";
/// Key of the chat template. Additional templates have `.NAME` appended.
const TEMPLATE: &str = "tokenizer.chat_template";
const TEMPLATE_NAMES: &str = "tokenizer.chat_templates";

/// Special tokens: key of the id, field of `tokenizer_config.json`.
const SPECIAL: [(&str, &str); 7] = [
    ("tokenizer.ggml.bos_token_id", "bos_token"),
    ("tokenizer.ggml.eos_token_id", "eos_token"),
    ("tokenizer.ggml.unknown_token_id", "unk_token"),
    ("tokenizer.ggml.padding_token_id", "pad_token"),
    ("tokenizer.ggml.seperator_token_id", "sep_token"),
    ("tokenizer.ggml.cls_token_id", "cls_token"),
    ("tokenizer.ggml.mask_token_id", "mask_token"),
];
/// Keys of the tokens that end an answer.
const ENDS: [&str; 3] = [
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
];

/// Values of `tokenizer.ggml.token_type`.
mod token_type {
    pub(super) const NORMAL: i64 = 1;
    pub(super) const UNKNOWN: i64 = 2;
    pub(super) const CONTROL: i64 = 3;
    pub(super) const USER_DEFINED: i64 = 4;
    pub(super) const UNUSED: i64 = 5;
    pub(super) const BYTE: i64 = 6;
}

/// Tokenizer, chat template and generation settings of a GGUF file, as the contents of the files that a Hugging Face
/// directory has for them.
#[derive(Clone, Debug)]
pub struct GgufTokenizer {
    /// The contents of `tokenizer.json`. As text, since its tree is ten times as large.
    tokenizer: String,
    config: Map<String, Value>,
    generation: Map<String, Value>,
    end_of_text: Option<u32>,
    warnings: Vec<String>,
}

/// A token of a vocabulary.
struct Token<'a> {
    text: &'a str,
    /// One of [`token_type`].
    kind: i64,
}

impl GgufTokenizer {
    /// Converts the metadata of a file. Returns `None` if the file has no tokenizer.
    ///
    /// # Errors
    /// A key has another type or a value that is not supported; the error has the key.
    pub fn read(metadata: &Metadata) -> Result<Option<Self>, TokenizerError> {
        read(metadata).map_err(|error| TokenizerError::Gguf {
            reason: error.to_string(),
        })
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// The vocabulary is not usable.
    pub fn tokenizer(&self) -> Result<Tokenizer, TokenizerError> {
        Tokenizer::from_json_with_end(self.tokenizer.as_str(), self.end_of_text)
    }

    /// The fields of `tokenizer_config.json`.
    pub fn config(&self) -> &Map<String, Value> {
        &self.config
    }

    /// Warnings about keys that are ignored.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The fields of `generation_config.json`.
    pub fn generation_config(&self) -> &Map<String, Value> {
        &self.generation
    }
}

fn read(metadata: &Metadata) -> Result<Option<GgufTokenizer>, GgufError> {
    let model = match metadata.text(MODEL)? {
        None | Some("none" | "no_vocab") => return Ok(None),
        Some(model) => model,
    };
    let tokens = tokens(metadata)?;
    let tokenizer = match model {
        "gpt2" => byte_pairs::file(metadata, &tokens)?,
        "llama" | "t5" => pieces::file(metadata, &tokens, model == "t5")?,
        "bert" => word_pieces::file(metadata, &tokens)?,
        _ => return Err(metadata.error(MODEL, "must be one of gpt2, llama, t5, bert")),
    };
    let end = token_id(metadata, ENDS[0], &tokens)?;
    let mut config = Map::new();
    config.insert(
        "tokenizer_class".to_owned(),
        json!("PreTrainedTokenizerFast"),
    );
    config.insert("clean_up_tokenization_spaces".to_owned(), json!(false));
    for (key, field) in SPECIAL {
        // Ids that a text needs are errors where it needs them.
        if let Ok(Some(id)) = token_id(metadata, key, &tokens) {
            config.insert(field.to_owned(), json!(tokens[id as usize].text));
        }
    }
    if let Some(template) = templates(metadata)? {
        config.insert("chat_template".to_owned(), template);
    }
    let mut ends = Vec::new();
    for key in ENDS {
        ends.extend(token_id(metadata, key, &tokens).ok().flatten());
    }
    ends.sort_unstable();
    ends.dedup();
    let mut generation = Map::new();
    if !ends.is_empty() {
        generation.insert("eos_token_id".to_owned(), json!(ends));
    }
    Ok(Some(GgufTokenizer {
        tokenizer: tokenizer.to_string(),
        config,
        generation,
        end_of_text: end,
        warnings: keys::warnings(metadata, &tokens, unused_ids()),
    }))
}

/// Keys of special tokens that no text needs.
fn unused_ids() -> impl Iterator<Item = &'static str> {
    let special = SPECIAL.into_iter().map(|(key, _)| key);
    special.chain(ENDS.into_iter().skip(1))
}

/// Reads the tokens and their types, which are normal if the file has none.
fn tokens(metadata: &Metadata) -> Result<Vec<Token<'_>>, GgufError> {
    let texts = metadata.texts(TOKENS)?;
    let texts = texts.ok_or_else(|| metadata.error(TOKENS, "must be given"))?;
    let kinds: Option<Vec<i64>> = match metadata.array(TOKEN_TYPES)? {
        None => Some(vec![token_type::NORMAL; texts.len()]),
        Some(kinds) => {
            let kind = |value: emberlm_gguf::Value| i64::try_from(value.integer()?).ok();
            kinds.iter().map(kind).collect()
        }
    };
    let known = token_type::NORMAL..=token_type::BYTE;
    let valid = |kinds: &Vec<i64>| {
        kinds.len() == texts.len() && kinds.iter().all(|kind| known.contains(kind))
    };
    let Some(kinds) = kinds.filter(valid) else {
        let rule = format!(
            "must have a type from 1 to 6 for each of the {} tokens",
            texts.len()
        );
        return Err(metadata.error(TOKEN_TYPES, rule));
    };
    let mut seen = std::collections::HashMap::new();
    for (id, text) in texts.iter().enumerate() {
        if let Some(first) = seen.insert(text.as_str(), id) {
            let rule = format!("tokens {first} and {id} are both {text:?}");
            return Err(metadata.error(TOKENS, rule));
        }
    }
    let tokens = texts.iter().zip(kinds);
    Ok(tokens.map(|(text, kind)| Token { text, kind }).collect())
}

/// The value of `chat_template`: one template, or a list of named ones.
fn templates(metadata: &Metadata) -> Result<Option<Value>, GgufError> {
    let main = metadata.text(TEMPLATE)?;
    let mut named = Vec::new();
    for name in metadata.texts(TEMPLATE_NAMES)?.unwrap_or_default() {
        if let Some(template) = metadata.text(&format!("{TEMPLATE}.{name}"))? {
            named.push(json!({"name": name, "template": template}));
        }
    }
    Ok(match (main, named.is_empty()) {
        (None, true) => None,
        (Some(main), true) => Some(json!(main)),
        (main, false) => {
            let main = main.map(|template| json!({"name": "default", "template": template}));
            Some(main.into_iter().chain(named).collect())
        }
    })
}

/// Tokens that are found in a text before it is split. Control tokens and the unknown token are special.
fn added_tokens(tokens: &[Token<'_>]) -> Vec<Value> {
    let added = tokens.iter().enumerate().filter_map(|(id, token)| {
        let special = match token.kind {
            token_type::CONTROL | token_type::UNKNOWN => true,
            token_type::USER_DEFINED => false,
            _ => return None,
        };
        (!token.text.is_empty()).then(|| {
            json!({
                "id": id, "content": token.text, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": special,
            })
        })
    });
    added.collect()
}

/// The template that adds special tokens to a text: the beginning and the end of a sequence, if the file requests them.
fn post_processor(
    metadata: &Metadata,
    tokens: &[Token<'_>],
    begins: bool,
) -> Result<Value, GgufError> {
    let begins = metadata
        .flag("tokenizer.ggml.add_bos_token")?
        .unwrap_or(begins);
    let ends = metadata
        .flag("tokenizer.ggml.add_eos_token")?
        .unwrap_or(false);
    let special = |wanted: bool, key: &str| match wanted {
        true => token_id(metadata, key, tokens),
        false => Ok(None),
    };
    let begin = special(begins, "tokenizer.ggml.bos_token_id")?;
    let end = special(ends, "tokenizer.ggml.eos_token_id")?;
    Ok(template(tokens, begin, end))
}

/// A template with a token before and after each text.
fn template(tokens: &[Token<'_>], begin: Option<u32>, end: Option<u32>) -> Value {
    if begin.is_none() && end.is_none() {
        return Value::Null;
    }
    let name = |id: u32| tokens[id as usize].text;
    let special = |id: Option<u32>, segment: u32| {
        id.map(|id| json!({"SpecialToken": {"id": name(id), "type_id": segment}}))
    };
    let text = |name: &str, segment: u32| json!({"Sequence": {"id": name, "type_id": segment}});
    let single: Vec<Value> = special(begin, 0)
        .into_iter()
        .chain([text("A", 0)])
        .chain(special(end, 0))
        .collect();
    let pair: Vec<Value> = single
        .iter()
        .cloned()
        .chain([text("B", 1)])
        .chain(special(end, 1))
        .collect();
    let listed = begin.into_iter().chain(end);
    let listed: Map<String, Value> = listed
        .map(|id| {
            let name = name(id);
            (
                name.to_owned(),
                json!({"id": name, "ids": [id], "tokens": [name]}),
            )
        })
        .collect();
    json!({
        "type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": listed,
    })
}

/// The ids by token.
fn vocabulary<'a>(texts: impl Iterator<Item = &'a str>) -> Map<String, Value> {
    texts
        .zip(0_u32..)
        .map(|(text, id)| (text.to_owned(), json!(id)))
        .collect()
}
