//! A tokenizer as the files that Hugging Face's libraries read.

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::tokenizer::Vocab;
use crate::{Tokenizer, byte, byte_level, merges};

/// The name of the end of a text where a vocabulary has no name of its own for it.
pub(crate) const END_OF_TEXT: &str = "<|endoftext|>";

/// A `tokenizer.json`, in the order in which Hugging Face's own are written.
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
    #[serde(rename = "BPE")]
    Bpe {
        dropout: Value,
        unk_token: Value,
        continuing_subword_prefix: Value,
        end_of_word_suffix: Value,
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

/// Tokens with their ids, written in the order in which they stand.
struct Tokens(Vec<(String, u32)>);

impl Serialize for Tokens {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(token, id)| (token, id)))
    }
}

impl Tokenizer {
    /// The tokenizer as a Hugging Face `tokenizer.json`, which gives the same ids for every text in the `tokenizers`
    /// library, and back; a tokenizer that was read from such a file gives that file, byte for byte.
    ///
    /// Two things cannot be said in such a file. The library finds special tokens in a text unless it is told not to
    /// (`encode_special_tokens`). And [`crate::TokenizerKind::Byte`]'s end of text, which stands for nothing here, gets the
    /// name `<|endoftext|>`. A character outside a char tokenizer's alphabet is an error there, as it is here.
    pub fn to_tokenizer_json(&self) -> Vec<u8> {
        let file = match self.vocab() {
            Vocab::File(file) => return file.json().to_vec(),
            Vocab::Bpe(bpe) => {
                let specials = bpe.special_tokens();
                let tokens = bpe.tokens();
                let pieces = json!({
                    "type": "Split", "pattern": {"Regex": bpe.pattern()}, "behavior": "Isolated", "invert": false,
                });
                let pre_tokenizer =
                    json!({"type": "Sequence", "pretokenizers": [pieces, byte_level()]});
                File::byte_level(pre_tokenizer, &tokens, specials)
            }
            Vocab::Byte => {
                let bytes: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
                let specials = vec![(END_OF_TEXT.to_owned(), byte::END_OF_TEXT)];
                File::byte_level(byte_level(), &bytes, specials)
            }
            Vocab::Char(chars) => {
                let characters = chars.alphabet();
                let vocab = characters.chars().map(String::from).zip(0..).collect();
                let model = Model::WordLevel {
                    vocab: Tokens(vocab),
                    // No character, so not in the vocabulary: what the alphabet lacks is an error.
                    unk_token: "<unk>",
                };
                let each = json!({
                    "type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": false,
                });
                File::new(Vec::new(), each, json!({"type": "Fuse"}), model)
            }
        };
        let mut json = serde_json::to_vec_pretty(&file).unwrap_or_default();
        json.push(b'\n');
        json
    }

    /// A `tokenizer_config.json` to lie beside [`Tokenizer::to_tokenizer_json`], with which `transformers` finds the
    /// tokenizer of a model that reads at most `model_max_length` tokens.
    ///
    /// Where the end of a text is one of this program's own, it also begins a text, as it does in training.
    pub fn to_tokenizer_config_json(&self, model_max_length: usize) -> Vec<u8> {
        let mut config = json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": false,
            "model_max_length": model_max_length,
        });
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

    /// What the end of a text is called in the `tokenizer.json`.
    fn end_of_text_name(&self) -> Option<String> {
        let id = self.end_of_text()?;
        match self.vocab() {
            Vocab::File(file) => file.token(id),
            Vocab::Bpe(_) | Vocab::Byte | Vocab::Char(_) => Some(END_OF_TEXT.to_owned()),
        }
    }
}

impl File {
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

    /// A byte-pair vocabulary: `tokens` by rank, which is their id, and special tokens with theirs.
    fn byte_level(pre_tokenizer: Value, tokens: &[Vec<u8>], specials: Vec<(String, u32)>) -> Self {
        let added = specials.iter().map(|(content, id)| {
            json!({
                "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true,
            })
        });
        let added = added.collect();
        let merges = merges::recover(tokens);
        let merges = merges.into_iter().map(|(left, right)| {
            format!("{} {}", byte_level::spell(left), byte_level::spell(right))
        });
        let vocab = tokens.iter().map(|token| byte_level::spell(token)).zip(0..);
        let model = Model::Bpe {
            dropout: Value::Null,
            unk_token: Value::Null,
            continuing_subword_prefix: Value::Null,
            end_of_word_suffix: Value::Null,
            fuse_unk: false,
            byte_fallback: false,
            ignore_merges: true,
            merges: merges.collect(),
            // The library numbers an added token anew where the vocabulary does not have it.
            vocab: Tokens(vocab.chain(specials).collect()),
        };
        Self::new(added, pre_tokenizer, byte_level(), model)
    }
}

/// Bytes as characters, without a pattern of its own and without a blank before the text.
fn byte_level() -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false})
}
