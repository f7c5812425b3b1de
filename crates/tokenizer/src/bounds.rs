//! Limits on the time and memory that a `tokenizer.json` can cost.
//!
//! Such files come with models from untrusted sources. Without limits, a chain of normalizers can multiply a
//! text until memory is exhausted, a long token makes searching quadratic, and a single id of 4 billion makes
//! tables of that size. The limits are several times the needs of published tokenizers. [`check`] reports the
//! field, its value and the limit.
//!
//! Not limited: a regular expression with look-ahead can take time quadratic in the length of a piece of text.

use serde_json::Value;
use tokenizers::{NormalizedString, Normalizer, NormalizerWrapper};

use crate::guard::charsmap_growth;

/// Maximum size of a tokenizer file in bytes. The largest published ones have about 35 MB.
pub(crate) const MAX_FILE: u64 = 128 << 20;
/// Maximum length of an added token in bytes, before and after normalization. Building the automaton that finds
/// added tokens takes time quadratic in their length. The longest in use are runs of 31 `▁`: 93 bytes.
const MAX_ADDED_TOKEN: usize = 256;
/// Maximum length of a vocabulary token in bytes. The longest in use are runs of 128 spaces, written as two
/// bytes each.
const MAX_TOKEN: usize = 2048;
/// Maximum length in bytes of an affix added to a piece of a word or to a text.
const MAX_AFFIX: usize = 64;
/// Maximum excess of the largest id over the number of tokens.
const MAX_UNUSED_IDS: u64 = 1 << 20;
/// Maximum number of characters of a word for WordPiece, which takes cubic time in it. 100 is usual.
const MAX_WORD: u64 = 1000;
/// Maximum number of normalizers, and of pre-tokenizers, including those in sequences.
const MAX_STEPS: usize = 64;
/// Maximum nesting depth of sequences.
const MAX_DEPTH: usize = 8;
/// Maximum factor by which normalizers and pre-tokenizers may multiply the bytes of a text. SentencePiece's own
/// normalization multiplies by up to 11, and spaces written as three bytes by 3.
const MAX_GROWTH: f64 = 64.0;
/// Maximum growth factor of decoders. Published ones shorten the text.
const MAX_DECODER_GROWTH: f64 = 4.0;
/// Maximum total length of regular expressions in bytes.
const MAX_REGEX: usize = 16 << 10;
/// Maximum product of the repetition counts, such as `{1,3}`, of a regular expression.
const MAX_REPETITION: u64 = 1000;

/// Checks a file, except for its decoder.
pub(crate) fn check(file: &Value) -> Result<(), String> {
    let model = &file["model"];
    check_model(model)?;
    check_ids(model, &file["added_tokens"])?;
    let normalizers = ChainCost::of("normalizer", &file["normalizer"])?;
    let pre_tokenizers = ChainCost::of("pre_tokenizer", &file["pre_tokenizer"])?;
    let growth = normalizers.growth * pre_tokenizers.growth;
    if growth > MAX_GROWTH {
        return Err(format!(
            "`normalizer` and `pre_tokenizer` can make a text {growth:.0} times as long; the limit is {MAX_GROWTH}"
        ));
    }
    let regexes = normalizers.regexes + pre_tokenizers.regexes;
    if regexes > MAX_REGEX {
        return Err(format!(
            "its regular expressions have {regexes} bytes; the limit is {MAX_REGEX}"
        ));
    }
    check_added_tokens(file, normalizers.growth)
}

/// Checks the `decoder` of a file.
pub(crate) fn check_decoder(decoder: &Value) -> Result<(), String> {
    let growth = ChainCost::of("decoder", decoder)?.growth;
    match growth > MAX_DECODER_GROWTH {
        true => Err(format!(
            "`decoder` can make a token {growth:.0} times as long; the limit is {MAX_DECODER_GROWTH}"
        )),
        false => Ok(()),
    }
}

fn check_model(model: &Value) -> Result<(), String> {
    for name in [
        "continuing_subword_prefix",
        "end_of_word_suffix",
        "unk_token",
    ] {
        let len = model[name].as_str().map_or(0, str::len);
        if len > MAX_AFFIX {
            return Err(format!(
                "`model.{name}` has {len} bytes; the limit is {MAX_AFFIX}"
            ));
        }
    }
    if let Some(word) = model["max_input_chars_per_word"].as_u64()
        && word > MAX_WORD
    {
        return Err(format!(
            "`model.max_input_chars_per_word` is {word}; the limit is {MAX_WORD}"
        ));
    }
    let longest = tokens(model).map(str::len).max().unwrap_or(0);
    match longest > MAX_TOKEN {
        true => Err(format!(
            "a token of `model.vocab` has {longest} bytes; the limit is {MAX_TOKEN}"
        )),
        false => Ok(()),
    }
}

/// Returns the tokens of a model's vocabulary, which maps names to ids or lists names and scores.
fn tokens(model: &Value) -> impl Iterator<Item = &str> {
    let named = model["vocab"].as_object().into_iter().flatten();
    let scored = model["vocab"].as_array().into_iter().flatten();
    named
        .map(|(token, _)| token.as_str())
        .chain(scored.filter_map(|pair| pair[0].as_str()))
}

/// Limits the ids: tables have an entry for each id up to the largest.
fn check_ids(model: &Value, added: &Value) -> Result<(), String> {
    let named = model["vocab"].as_object().into_iter().flatten();
    let added = added.as_array().into_iter().flatten();
    let of_added = added.clone().filter_map(|token| token["id"].as_u64());
    let ids = named.filter_map(|(_, id)| id.as_u64()).chain(of_added);
    let count = tokens(model).count() + added.count();
    let most = count as u64 + MAX_UNUSED_IDS;
    match ids.max() {
        Some(id) if id > most => Err(format!(
            "the id {id} is too large for a vocabulary of {count} tokens; the limit is {most}"
        )),
        _ => Ok(()),
    }
}

/// Checks the added tokens. `growth` is the factor by which normalization can lengthen them.
fn check_added_tokens(file: &Value, growth: f64) -> Result<(), String> {
    let tokens = file["added_tokens"].as_array().into_iter().flatten();
    let tokens = tokens.filter_map(|token| Some((token["content"].as_str()?, token)));
    let too_long = |len: usize, which: &str, content: &str| {
        let begin: String = content.chars().take(20).collect();
        format!(
            "the added token {begin:?}{} has {len} bytes{which}; the limit is {MAX_ADDED_TOKEN}",
            if begin.len() < content.len() {
                "…"
            } else {
                ""
            }
        )
    };
    let mut normalizer: Option<NormalizerWrapper> = None;
    for (content, token) in tokens {
        if content.len() > MAX_ADDED_TOKEN {
            return Err(too_long(content.len(), "", content));
        }
        if growth <= 1.0 || token["normalized"] != Value::Bool(true) {
            continue;
        }
        let normalizer = match &normalizer {
            Some(normalizer) => normalizer,
            // An unsupported normalizer is rejected later, when the crate reads the file.
            None => match serde_json::from_value(file["normalizer"].clone()) {
                Ok(read) => normalizer.insert(read),
                Err(_) => return Ok(()),
            },
        };
        let mut text = NormalizedString::from(content);
        let normalized = normalizer.normalize(&mut text);
        normalized.map_err(|error| format!("the added token {content:?}: {error}"))?;
        if text.get().len() > MAX_ADDED_TOKEN {
            return Err(too_long(
                text.get().len(),
                " when it is normalized",
                content,
            ));
        }
    }
    Ok(())
}

/// The accumulated cost of a chain of normalizers, pre-tokenizers or decoders.
struct ChainCost {
    field: &'static str,
    steps: usize,
    /// The maximum factor by which a text grows.
    growth: f64,
    /// The total length of regular expressions in bytes.
    regexes: usize,
    /// True if an earlier step may have inserted characters that compatibility normalization expands.
    expandable: bool,
}

impl ChainCost {
    /// Computes the cost of `part`, the file's field `field`.
    fn of(field: &'static str, part: &Value) -> Result<Self, String> {
        let mut chain = Self {
            field,
            steps: 0,
            growth: 1.0,
            regexes: 0,
            expandable: false,
        };
        chain.add(part, 0)?;
        Ok(chain)
    }

    fn add(&mut self, part: &Value, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!(
                "`{}` nests deeper than {MAX_DEPTH} sequences, the limit",
                self.field
            ));
        }
        let parts = ["normalizers", "pretokenizers", "decoders"].map(|name| part[name].as_array());
        for inner in parts.into_iter().flatten().flatten() {
            self.add(inner, depth + 1)?;
        }
        if part.is_null() {
            return Ok(());
        }
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return Err(format!(
                "`{}` has more than {MAX_STEPS} steps, the limit",
                self.field
            ));
        }
        if let Some(regex) = part["pattern"]["Regex"].as_str() {
            self.regexes += regex.len();
            check_repetitions(self.field, regex)?;
        }
        self.growth *= match part["type"].as_str() {
            Some("Replace") => {
                self.expandable = true;
                replace_growth(part)
            }
            Some("Prepend") => {
                let len = part["prepend"].as_str().map_or(0, str::len);
                if len > MAX_AFFIX {
                    return Err(format!(
                        "`prepend` of `{}` has {len} bytes; the limit is {MAX_AFFIX}",
                        self.field
                    ));
                }
                1.0
            }
            // A character of three bytes can become 18 characters with 33 bytes. Normalized text does not grow
            // again.
            Some("NFKC" | "NFKD") if self.expandable => 11.0,
            Some("Precompiled") => {
                let map = part["precompiled_charsmap"].as_str().unwrap_or_default();
                charsmap_growth(map)?
            }
            // Half of the bytes are written as two-byte characters.
            Some("ByteLevel") if self.field != "decoder" => 2.0,
            _ => 1.0,
        };
        Ok(())
    }
}

/// Returns the ratio of a `Replace`'s content length to its shortest match.
fn replace_growth(part: &Value) -> f64 {
    let content = part["content"].as_str().map_or(0, str::len) as f64;
    let least = match (
        part["pattern"]["String"].as_str(),
        part["pattern"]["Regex"].as_str(),
    ) {
        (Some(text), _) => text.len(),
        (_, Some(regex)) => least_match(regex),
        _ => 0,
    };
    match least {
        // An empty match inserts the content between all characters.
        0 => 1.0 + content,
        least => (content / least as f64).max(1.0),
    }
}

/// Returns the length in bytes of the shortest match of a regular expression, or 0 if unknown.
fn least_match(regex: &str) -> usize {
    let parsed = regex_syntax::parse(regex).ok();
    parsed
        .and_then(|parsed| parsed.properties().minimum_len())
        .unwrap_or(0)
}

/// Limits counted repetitions: they are compiled to copies, which multiply when nested.
fn check_repetitions(field: &str, regex: &str) -> Result<(), String> {
    let mut product: u64 = 1;
    for (at, _) in regex.match_indices('{') {
        let Some((inside, _)) = regex[at + 1..].split_once('}') else {
            break;
        };
        // Other contents of braces are class names.
        let counts = inside
            .split(',')
            .filter_map(|count| count.trim().parse().ok());
        let count = counts.max().unwrap_or(1);
        product = product.saturating_mul(count.max(1));
    }
    match product > MAX_REPETITION {
        true => Err(format!(
            "the repetitions of a regular expression of `{field}` multiply to {product}; the limit is {MAX_REPETITION}"
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Normalizers and pre-tokenizers of published tokenizers, with the longest added tokens.
    #[test]
    fn published_tokenizers_are_within_the_limits() {
        let blanks = |count| {
            let content = "\u{2581}".repeat(count);
            json!([{"id": 3, "content": content, "normalized": false, "special": false}])
        };
        let replace = |pattern: Value, content: &str| json!({"type": "Replace", "pattern": pattern, "content": content});
        let model = json!({"type": "BPE", "vocab": {"a": 0, (" ".repeat(128)): 1}, "merges": []});
        let sequence = |parts: Value| json!({"type": "Sequence", "normalizers": parts});
        let llama3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
        let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
        let split = json!({"type": "Split", "pattern": {"Regex": llama3}, "behavior": "Isolated", "invert": false});
        let files = [
            // Llama 3, Qwen.
            json!({"model": model, "normalizer": {"type": "NFC"}, "added_tokens": blanks(0),
                "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]}}),
            // Gemma.
            json!({"model": model, "normalizer": replace(json!({"String": " "}), "\u{2581}"), "added_tokens": blanks(31)}),
            // Llama 2.
            json!({"model": model, "normalizer": sequence(json!([
                {"type": "Prepend", "prepend": "\u{2581}"}, replace(json!({"String": " "}), "\u{2581}")]))}),
            // ALBERT, without its table of characters.
            json!({"model": model, "normalizer": sequence(json!([
                replace(json!({"String": "``"}), "\""), replace(json!({"String": "''"}), "\""),
                {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
                replace(json!({"Regex": " {2,}"}), " ")]))}),
            // BERT.
            json!({"model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0}},
                "normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"}}),
        ];
        for file in files {
            assert_eq!(check(&file), Ok(()), "{file}");
        }
    }

    #[test]
    fn growth_is_that_of_all_steps() {
        let double = json!({"type": "Replace", "pattern": {"Regex": "a|bb"}, "content": "aaa"});
        let chain = |count| {
            let parts = vec![double.clone(); count];
            ChainCost::of(
                "normalizer",
                &json!({"type": "Sequence", "normalizers": parts}),
            )
            .unwrap()
        };
        assert_eq!((chain(1).growth, chain(3).growth), (3.0, 27.0));
        assert_eq!(least_match(r"\s+(?!\S)"), 0);
        assert_eq!(least_match(r"x{2,}|[é]"), 2);
        assert!(check_repetitions("normalizer", r"\p{L}{1,3}x{2,}{40}").is_ok());
        assert!(check_repetitions("normalizer", r"(a{40}){40}").is_err());
    }
}
