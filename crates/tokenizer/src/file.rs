//! A Hugging Face `tokenizer.json`, through the `tokenizers` crate.
//!
//! The crate encodes text; `decoder` decodes ids. Settings for other purposes are ignored: truncation, padding,
//! the template that adds special tokens, and merge dropout. The same text therefore always gives the same ids,
//! untruncated.

use std::collections::HashSet;
use std::fmt;

use serde_json::Value;
use tokenizers::Model;

use crate::decoder::{Position, TokenDecoder};
use crate::fast_encoder::FastEncoder;
use crate::{TokenizerError, bounds, byte_level, guard, patterns};

/// End-of-text names in published tokenizers, the most probable first.
const END_OF_TEXT_NAMES: [&str; 8] = [
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "[EOS]",
    "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>",
    "<|eot_id|>",
    "<|im_end|>",
];

/// A tokenizer loaded from a file.
pub(crate) struct FileVocab {
    /// The contents of the file.
    json: Vec<u8>,
    inner: tokenizers::Tokenizer,
    decoder: TokenDecoder,
    vocab_size: usize,
    end_of_text: Option<u32>,
    /// The special tokens except the unknown token. These ids never result from text.
    special: HashSet<u32>,
    /// The unknown token, which can result from text.
    unknown: Option<u32>,
    /// The fast encoder, if the file splits texts like a built-in vocabulary and does not change them
    /// otherwise.
    fast: Option<FastEncoder>,
}

impl FileVocab {
    /// Parses a `tokenizer.json`.
    pub(crate) fn new(json: Vec<u8>) -> Result<Self, TokenizerError> {
        Self::read(json).map_err(|reason| TokenizerError::Format { reason })
    }

    fn read(json: Vec<u8>) -> Result<Self, String> {
        let mut value: Value =
            serde_json::from_slice(&json).map_err(|error| format!("it is not JSON: {error}"))?;
        let fields = value.as_object_mut().ok_or("it is not a JSON object")?;
        let decoder = fields.get("decoder").unwrap_or(&Value::Null);
        bounds::check_decoder(decoder)?;
        let decoder = TokenDecoder::read(decoder)?;
        // `decoder` and `post_processor` do not affect the functions of the crate that are used here.
        for field in ["truncation", "padding", "decoder", "post_processor"] {
            fields.insert(field.to_owned(), Value::Null);
        }
        let model = fields.get_mut("model").and_then(Value::as_object_mut);
        let model = model.ok_or("`model` must be an object")?;
        if model.contains_key("dropout") {
            model.insert("dropout".to_owned(), Value::Null);
        }
        guard::check(&value)?;
        bounds::check(&value)?;
        let fast = patterns::known_pattern(&value).and_then(FastEncoder::new);
        let unknown = unknown_token(&value["model"]);
        let added = added_tokens(&value["added_tokens"])?;

        let mut inner: tokenizers::Tokenizer =
            serde_json::from_value(value).map_err(|error| error.to_string())?;
        inner.set_encode_special_tokens(true);
        for (content, id, _) in &added {
            let found = inner.token_to_id(content);
            if found != Some(*id) {
                return Err(format!(
                    "the added token `{content}` has id {id}, which is not its place in the vocabulary"
                ));
            }
        }
        let last = inner.get_vocab(true).into_values().max();
        let vocab_size = last.ok_or("its vocabulary is empty")? as usize + 1;
        let specials = added.iter().filter(|(_, _, special)| *special);
        let find = |name: &&str| {
            let mut named = specials.clone().filter(|(content, ..)| content == name);
            named.next().map(|&(_, id, _)| id)
        };
        let end_of_text = END_OF_TEXT_NAMES.iter().find_map(find);
        let unknown = unknown.and_then(|name| inner.token_to_id(&name));
        let special = specials.map(|&(_, id, _)| id);
        let special = special.filter(|&id| Some(id) != unknown).collect();
        Ok(Self {
            json,
            decoder,
            vocab_size,
            end_of_text,
            special,
            unknown,
            fast,
            inner,
        })
    }

    /// The contents of the file.
    pub(crate) fn json(&self) -> &[u8] {
        &self.json
    }

    pub(crate) fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    pub(crate) fn end_of_text(&self) -> Option<u32> {
        self.end_of_text
    }

    /// Sets the end-of-text id, overriding the tokens' names. Returns false if there is no such id.
    pub(crate) fn set_end_of_text(&mut self, id: Option<u32>) -> bool {
        self.end_of_text = id;
        self.special
            .extend(id.filter(|&id| Some(id) != self.unknown));
        id.is_none_or(|id| self.inner.id_to_token(id).is_some())
    }

    /// The special tokens except the unknown token.
    pub(crate) fn special(&self) -> impl Iterator<Item = u32> {
        self.special.iter().copied()
    }

    /// The unknown token.
    pub(crate) fn unknown(&self) -> Option<u32> {
        self.unknown
    }

    pub(crate) fn decoder(&self) -> &TokenDecoder {
        &self.decoder
    }

    pub(crate) fn token_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    pub(crate) fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The crate's tokenizer, configured not to recognize special tokens in text.
    pub(crate) fn inner(&self) -> &tokenizers::Tokenizer {
        &self.inner
    }

    pub(crate) fn is_special(&self, id: u32) -> bool {
        self.special.contains(&id)
    }

    /// The piece-by-piece encoder, if the file supports it.
    pub(crate) fn fast_encoder(&self) -> Option<&FastEncoder> {
        self.fast.as_ref()
    }

    /// Encodes `text`. The result has no special tokens.
    pub(crate) fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        if let Some(fast) = &self.fast {
            return fast.encode(text, |piece, ids| self.encode_piece(piece, ids));
        }
        let encoding = self.inner.encode_fast(text, false).map_err(encode_error)?;
        self.without_special(encoding.get_ids())
    }

    /// Appends the ids of a piece, which the model expects in GPT-2's byte alphabet.
    fn encode_piece(&self, piece: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let spelled = byte_level::spell(piece.as_bytes());
        let tokens = self
            .inner
            .get_model()
            .tokenize(&spelled)
            .map_err(encode_error)?;
        let found: Vec<u32> = tokens.into_iter().map(|token| token.id).collect();
        ids.extend(self.without_special(&found)?);
        Ok(())
    }

    /// Replaces each special token by the ids of its name as plain text.
    fn without_special(&self, ids: &[u32]) -> Result<Vec<u32>, TokenizerError> {
        if !ids.iter().any(|id| self.special.contains(id)) {
            return Ok(ids.to_vec());
        }
        let mut plain = Vec::with_capacity(ids.len());
        for &id in ids {
            match self.special.contains(&id) {
                true => plain.extend(self.spell(id)?),
                false => plain.push(id),
            }
        }
        Ok(plain)
    }

    /// Encodes a special token's name as plain text. Most models cannot produce a special token from text.
    /// Those whose vocabulary contains the name can, but not if its first character is encoded separately.
    pub(crate) fn spell(&self, id: u32) -> Result<Vec<u32>, TokenizerError> {
        let name = self.inner.id_to_token(id).unwrap_or_default();
        let first = name.chars().next().map_or(0, char::len_utf8);
        let (head, rest) = name.split_at(first);
        let mut ids = Vec::new();
        for part in [head, rest] {
            let tokens = self
                .inner
                .get_model()
                .tokenize(part)
                .map_err(encode_error)?;
            ids.extend(tokens.into_iter().map(|token| token.id));
        }
        ids.retain(|id| !self.special.contains(id));
        Ok(ids)
    }

    /// Appends the bytes of `id` at `position`. Returns false and changes nothing if there is no such id.
    pub(crate) fn push_bytes(&self, id: u32, position: &mut Position, out: &mut Vec<u8>) -> bool {
        match self.inner.id_to_token(id) {
            Some(token) => self.decoder.push(&token, position, out),
            None => return false,
        }
        true
    }
}

impl fmt::Debug for FileVocab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileVocab")
            .field("vocab_size", &self.vocab_size)
            .field("end_of_text", &self.end_of_text)
            .finish_non_exhaustive()
    }
}

pub(crate) fn encode_error(error: Box<dyn std::error::Error + Send + Sync>) -> TokenizerError {
    let reason = error.to_string();
    TokenizerError::Encode { reason }
}

/// Parses the added tokens: content, id, and true if special.
fn added_tokens(value: &Value) -> Result<Vec<(String, u32, bool)>, String> {
    let Some(tokens) = value.as_array() else {
        return match value {
            Value::Null => Ok(Vec::new()),
            _ => Err("`added_tokens` must be a list".to_owned()),
        };
    };
    let read = |token: &Value| {
        let id = token["id"].as_u64().map(u32::try_from)?.ok()?;
        let content = token["content"].as_str()?.to_owned();
        Some((content, id, token["special"] == Value::Bool(true)))
    };
    let rule = "each of `added_tokens` must have an `id` and a `content`";
    tokens
        .iter()
        .map(|token| read(token).ok_or_else(|| rule.to_owned()))
        .collect()
}

/// Returns the name of the unknown token.
fn unknown_token(model: &Value) -> Option<String> {
    let of_unigram = || {
        let at = usize::try_from(model["unk_id"].as_u64()?).ok()?;
        model["vocab"].get(at)?.get(0)?.as_str()
    };
    model["unk_token"]
        .as_str()
        .or_else(of_unigram)
        .map(str::to_owned)
}
