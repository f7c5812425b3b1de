//! The regular expressions that split a text into pieces, as written in a `tokenizer.json`.
//!
//! They match the same pieces as tiktoken's, in the syntax that Oniguruma and fancy-regex share. Two
//! differences from tiktoken's text: possessive quantifiers are plain ones, which gives the same pieces
//! (Oniguruma reads `{1,3}+` differently), and `$` is `\z`, because Oniguruma's `$` matches at the end of every
//! line.

use serde_json::Value;

/// GPT-2's pattern, which is also built into the ByteLevel pre-tokenizer.
pub(crate) const GPT2: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// cl100k's pattern.
pub(crate) const CL100K: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+\z|\s*[\r\n]|\s+(?!\S)|\s";

/// o200k's pattern.
pub(crate) const O200K: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

/// Llama 3's pattern: cl100k's, except for trailing white space.
pub(crate) const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Qwen 2's pattern: Llama 3's with single digits.
pub(crate) const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// All patterns. Each ends a piece at the positions described in `cut`.
pub(crate) const ALL: [&str; 5] = [GPT2, CL100K, O200K, LLAMA3, QWEN2];

/// Returns the pattern of a `tokenizer.json`, if it is a known one and the file does not change texts
/// otherwise.
pub(crate) fn known_pattern(file: &Value) -> Option<&'static str> {
    let absent = |value: &Value| value.is_null() || value == "";
    let model = &file["model"];
    let plain_model = model["type"] == "BPE"
        && absent(&model["continuing_subword_prefix"])
        && absent(&model["end_of_word_suffix"]);
    // Special tokens are not recognized in text. Other added tokens could span a cut.
    let added = file["added_tokens"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let all_special = added.iter().all(|token| token["special"] == true);
    let bytes = |step: &Value, own_pattern: bool| {
        step["type"] == "ByteLevel"
            && step["add_prefix_space"] == false
            && step["use_regex"].as_bool().unwrap_or(true) == own_pattern
    };
    let splits = |step: &Value| {
        let isolated =
            step["type"] == "Split" && step["behavior"] == "Isolated" && step["invert"] == false;
        let pattern = step["pattern"]["Regex"].as_str().filter(|_| isolated);
        ALL.into_iter().find(|known| pattern == Some(known))
    };
    let pieces = &file["pre_tokenizer"];
    let pattern = match pieces["pretokenizers"].as_array().map(Vec::as_slice) {
        Some([split, rest]) if pieces["type"] == "Sequence" && bytes(rest, false) => splits(split),
        None if bytes(pieces, true) => Some(GPT2),
        _ => None,
    };
    let plain = file["normalizer"].is_null() && plain_model && all_special;
    pattern.filter(|_| plain)
}
