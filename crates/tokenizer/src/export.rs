//! Exports a tokenizer to the files that Hugging Face libraries read.

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::tokenizer::Vocab;
use crate::{Tokenizer, byte, byte_level, merges};

/// The name of the end-of-text token of vocabularies that do not name it.
pub(crate) const END_OF_TEXT: &str = "<|endoftext|>";

/// A `tokenizer.json`, with its fields in Hugging Face's order.
#[derive(Serialize)]
struct File {
    version: &'static str,
    truncation: Value,
    padding: Value,
    added_tokens: Vec<Value>,
    normalizer: Value,
    pre_tokenizer: Value,
    post_processor: Value,
    decoder: Value,
    model: Model,
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum Model {
    /// Fields of type `()` are serialized as null.
    #[serde(rename = "BPE")]
    Bpe {
        dropout: (),
        unk_token: (),
        continuing_subword_prefix: (),
        end_of_word_suffix: (),
        fuse_unk: bool,
        byte_fallback: bool,
        ignore_merges: bool,
        vocab: Tokens,
        merges: Vec<String>,
    },
    WordLevel {
        vocab: Tokens,
        unk_token: &'static str,
    },
}

impl Model {
    /// A byte-level model without an unknown token. With `ignore_merges`, a piece that is a token becomes that
    /// token without merging.
    fn byte_pairs(vocab: Vec<(String, u32)>, merges: Vec<String>, ignore_merges: bool) -> Self {
        Self::Bpe {
            dropout: (),
            unk_token: (),
            continuing_subword_prefix: (),
            end_of_word_suffix: (),
            fuse_unk: false,
            byte_fallback: false,
            ignore_merges,
            vocab: Tokens(vocab),
            merges,
        }
    }
}

/// Tokens and ids, serialized in this order.
struct Tokens(Vec<(String, u32)>);

impl Serialize for Tokens {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(token, id)| (token, id)))
    }
}

impl Tokenizer {
    /// Returns a Hugging Face `tokenizer.json` with which the `tokenizers` library encodes every text to the
    /// same ids, and decodes them. A tokenizer that was loaded from such a file returns it byte for byte.
    ///
    /// The format cannot express two things. The library recognizes special tokens in text unless
    /// `encode_special_tokens` is set. The end of text of [`crate::TokenizerKind::Byte`], which has no text
    /// here, is named `<|endoftext|>`. A character outside a char tokenizer's alphabet is an error in both.
    pub fn to_tokenizer_json(&self) -> Vec<u8> {
        let file = match self.vocab() {
            Vocab::File(file) => return file.json().to_vec(),
            Vocab::Bpe(bpe) => {
                let specials = bpe.special_tokens();
                let tokens: Vec<_> = bpe.tokens().collect();
                return byte_pairs_json(bpe.pattern(), &tokens, specials);
            }
            Vocab::Byte => {
                let bytes: Vec<u8> = (0..=u8::MAX).collect();
                let tokens: Vec<_> = (0..).zip(bytes.chunks(1)).collect();
                let specials = [(END_OF_TEXT.to_owned(), byte::END_OF_TEXT)];
                File::byte_level(byte_level(), &tokens, &specials)
            }
            Vocab::Char(chars) => {
                let characters = chars.alphabet();
                let vocab = characters.chars().map(String::from).zip(0..).collect();
                let model = Model::WordLevel {
                    vocab: Tokens(vocab),
                    // Not a single character, so not in the vocabulary: characters outside the alphabet are
                    // errors.
                    unk_token: "<unk>",
                };
                let each = json!({
                    "type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": false,
                });
                File::new(Vec::new(), each, json!({"type": "Fuse"}), model)
            }
        };
        file.to_json()
    }

    /// Returns a `tokenizer_config.json` to accompany [`Tokenizer::to_tokenizer_json`], with which
    /// `transformers` loads the tokenizer. `model_max_length` is the context length of the model, if there is
    /// one.
    ///
    /// The end of text of a built-in tokenizer is also its beginning-of-text token, as in training.
    pub fn to_tokenizer_config_json(&self, model_max_length: Option<usize>) -> Vec<u8> {
        let mut config = json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": false,
        });
        if let Some(length) = model_max_length {
            config["model_max_length"] = json!(length);
        }
        if let Some(name) = self.end_of_text_name() {
            if !matches!(self.vocab(), Vocab::File(_)) {
                config["bos_token"] = json!(name);
            }
            config["eos_token"] = json!(name);
        }
        let mut json = serde_json::to_vec_pretty(&config).unwrap_or_default();
        json.push(b'\n');
        json
    }

    /// Returns the name of the end-of-text token in the `tokenizer.json`.
    fn end_of_text_name(&self) -> Option<String> {
        let id = self.end_of_text()?;
        match self.vocab() {
            Vocab::File(file) => file.token(id),
            Vocab::Bpe(_) | Vocab::Byte | Vocab::Char(_) => Some(END_OF_TEXT.to_owned()),
        }
    }
}

/// Returns the `tokenizer.json` of a byte-pair vocabulary that splits by `pattern`. `tokens` must be sorted by
/// id, which is the rank.
pub(crate) fn byte_pairs_json(
    pattern: &str,
    tokens: &[(u32, &[u8])],
    specials: &[(String, u32)],
) -> Vec<u8> {
    File::byte_level(split_to_bytes(pattern), tokens, specials).to_json()
}

/// Returns the `tokenizer.json` of a trained byte-level vocabulary. `vocab` is sorted by id and includes the
/// special tokens; `merges` are in order.
pub(crate) fn trained_json(
    pattern: &str,
    vocab: Vec<(String, u32)>,
    merges: Vec<String>,
    specials: &[(String, u32)],
) -> Vec<u8> {
    let model = Model::byte_pairs(vocab, merges, false);
    File::new(
        special_tokens(specials),
        split_to_bytes(pattern),
        byte_level(),
        model,
    )
    .to_json()
}

/// Returns a model's merges in order, each as two tokens separated by a space. The crate exposes them only
/// through serialization.
pub(crate) fn merges_of(model: &tokenizers::models::bpe::BPE) -> Option<Vec<String>> {
    let model = serde_json::to_value(model).ok()?;
    let merge = |merge: &Value| match merge {
        Value::String(merge) => Some(merge.clone()),
        pair => Some(format!("{} {}", pair[0].as_str()?, pair[1].as_str()?)),
    };
    model["merges"].as_array()?.iter().map(merge).collect()
}

/// Returns the pre-tokenizer that splits by `pattern` and writes pieces in the byte alphabet.
pub(crate) fn split_to_bytes(pattern: &str) -> Value {
    let pieces = json!({
        "type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false,
    });
    json!({"type": "Sequence", "pretokenizers": [pieces, byte_level()]})
}

impl File {
    fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).unwrap_or_default();
        json.push(b'\n');
        json
    }

    fn new(added_tokens: Vec<Value>, pre_tokenizer: Value, decoder: Value, model: Model) -> Self {
        Self {
            version: "1.0",
            truncation: Value::Null,
            padding: Value::Null,
            added_tokens,
            normalizer: Value::Null,
            pre_tokenizer,
            post_processor: Value::Null,
            decoder,
            model,
        }
    }

    /// A byte-pair vocabulary. `tokens` must be sorted by id, which is the rank.
    fn byte_level(
        pre_tokenizer: Value,
        tokens: &[(u32, &[u8])],
        specials: &[(String, u32)],
    ) -> Self {
        let ranked: Vec<&[u8]> = tokens.iter().map(|(_, bytes)| *bytes).collect();
        let merges = merges::recover(&ranked);
        let merges = merges.into_iter().map(|(left, right)| {
            format!("{} {}", byte_level::spell(left), byte_level::spell(right))
        });
        let plain = tokens
            .iter()
            .map(|(id, token)| (byte_level::spell(token), *id));
        // The library would assign new ids to added tokens outside the vocabulary.
        let mut vocab: Vec<_> = plain.chain(specials.iter().cloned()).collect();
        vocab.sort_by_key(|(_, id)| *id);
        let model = Model::byte_pairs(vocab, merges.collect(), true);
        Self::new(special_tokens(specials), pre_tokenizer, byte_level(), model)
    }
}

fn special_tokens(specials: &[(String, u32)]) -> Vec<Value> {
    let added = |(content, id): &(String, u32)| {
        json!({
            "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        })
    };
    specials.iter().map(added).collect()
}

/// The ByteLevel step, without a pattern or a prefix space.
pub(crate) fn byte_level() -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false})
}
