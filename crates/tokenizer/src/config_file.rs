//! Settings of a `tokenizer_config.json` that disagree with the `tokenizer.json` beside it. Texts are encoded by
//! `tokenizer.json`, so each such setting is a warning.

use std::collections::HashMap;
use std::path::Path;

use emberlm_system::read::{DESCRIPTION_LIMIT, read_bytes};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::bounds;
use crate::kind::{TOKENIZER_CONFIG_FILE, TOKENIZER_FILE};

/// The parts of a `tokenizer.json` that settings are compared with. The vocabulary is skipped.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenizerParts {
    added_tokens: Option<Vec<Value>>,
    normalizer: Value,
    pre_tokenizer: Value,
    post_processor: Value,
    decoder: Value,
}

/// Compares the `tokenizer_config.json` in a folder with its `tokenizer.json`. `decodes` states that ids are decoded to
/// texts. Files that cannot be read give no warnings.
pub fn config_warnings(folder: &Path, decodes: bool) -> Vec<String> {
    let read = |name: &str, limit| read_bytes(&folder.join(name), limit).ok();
    let config = read(TOKENIZER_CONFIG_FILE, DESCRIPTION_LIMIT);
    let config = config.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let Some(config) = config else {
        return Vec::new();
    };
    let parts = read(TOKENIZER_FILE, bounds::MAX_FILE);
    let parts = parts.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    parts.map_or_else(Vec::new, |parts| compared(&config, &parts, decodes))
}

fn compared(config: &Map<String, Value>, parts: &TokenizerParts, decodes: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |field: &str, rule: String| {
        let value = config.get(field).unwrap_or(&Value::Null);
        warnings.push(format!(
            "{TOKENIZER_CONFIG_FILE}: `{field}` = {value} is ignored: {rule}"
        ));
    };
    let flag = |field: &str| config.get(field).and_then(Value::as_bool);
    let [before, after] = frame(&parts.post_processor);
    for (field, token, tokens, place) in [
        ("add_bos_token", "bos_token", before, "before"),
        ("add_eos_token", "eos_token", after, "after"),
    ] {
        let Some(token) = config.get(token).and_then(special_name) else {
            continue;
        };
        let added = tokens.contains(&token);
        if flag(field).is_some_and(|wanted| wanted != added) {
            let verb = if added { "puts" } else { "does not put" };
            warn(
                field,
                format!("the template of {TOKENIZER_FILE} {verb} {token} {place} a text"),
            );
        }
    }
    let components = |value: &Value, list: &str| {
        let parts = value[list].as_array().cloned();
        parts.unwrap_or_else(|| vec![value.clone()])
    };
    let normalizers = components(&parts.normalizer, "normalizers");
    let find = |kind: &str| normalizers.iter().find(|part| part["type"] == kind);
    let lowers = match find("BertNormalizer") {
        Some(normalizer) => normalizer["lowercase"] == true,
        None => find("Lowercase").is_some(),
    };
    if flag("do_lower_case").is_some_and(|wanted| wanted != lowers) {
        let verb = if lowers { "lowers" } else { "keeps" };
        warn(
            "do_lower_case",
            format!("{TOKENIZER_FILE} {verb} the case of texts"),
        );
    }
    for (field, own) in [
        ("strip_accents", "strip_accents"),
        ("tokenize_chinese_chars", "handle_chinese_chars"),
    ] {
        if let (Some(wanted), Some(normalizer)) = (flag(field), find("BertNormalizer"))
            && normalizer[own].as_bool().unwrap_or(lowers) != wanted
        {
            let rule = format!("the normalizer of {TOKENIZER_FILE} has {}", normalizer[own]);
            warn(field, rule);
        }
    }
    let spaced = components(&parts.pre_tokenizer, "pretokenizers")
        .iter()
        .find_map(|part| match part["type"].as_str() {
            Some("ByteLevel") => part["add_prefix_space"].as_bool(),
            Some("Metaspace") => part["prepend_scheme"]
                .as_str()
                .map(|scheme| scheme != "never"),
            _ => None,
        });
    if let (Some(wanted), Some(spaced)) = (flag("add_prefix_space"), spaced)
        && wanted != spaced
    {
        let verb = if spaced { "puts" } else { "does not put" };
        warn(
            "add_prefix_space",
            format!("{TOKENIZER_FILE} {verb} a space before a text"),
        );
    }
    // `transformers` ignores it for byte pairs.
    let is_byte_pairs = parts.decoder["type"] == "ByteLevel";
    if decodes && !is_byte_pairs && flag("clean_up_tokenization_spaces") == Some(true) {
        warn(
            "clean_up_tokenization_spaces",
            "spaces before punctuation are kept".to_owned(),
        );
    }
    warnings.extend(missing_tokens(config, parts));
    warnings
}

/// Warnings about added tokens that `tokenizer.json` lacks, or has with another id or kind.
fn missing_tokens(config: &Map<String, Value>, parts: &TokenizerParts) -> Vec<String> {
    let added = parts.added_tokens.as_deref().unwrap_or_default();
    let known: HashMap<&str, &Value> = added
        .iter()
        .filter_map(|token| Some((token["content"].as_str()?, token)))
        .collect();
    let listed = config
        .get("added_tokens_decoder")
        .and_then(Value::as_object);
    let mut warnings = Vec::new();
    for (id, token) in listed.into_iter().flatten() {
        let content = token["content"].as_str().unwrap_or_default();
        let own = known.get(content);
        let number = id.parse::<u64>().ok();
        let same_id = own.is_some_and(|own| own["id"].as_u64() == number);
        let is_special = |token: &Value| token["special"] == true;
        let rule = match own {
            Some(own) if same_id && is_special(own) == is_special(token) => continue,
            Some(own) if same_id => match is_special(own) {
                true => format!("{TOKENIZER_FILE} has it as a special token"),
                false => format!("{TOKENIZER_FILE} has it as a token of texts"),
            },
            Some(own) => format!("{TOKENIZER_FILE} has it with the id {}", own["id"]),
            None => format!("{TOKENIZER_FILE} has no such added token"),
        };
        warnings.push(format!(
            "{TOKENIZER_CONFIG_FILE}: `added_tokens_decoder.{id}` = {content:?} is ignored: {rule}"
        ));
    }
    warnings
}

/// The name of a token: a string, or an object with the string in `content`.
fn special_name(token: &Value) -> Option<String> {
    let name = token.as_str().or_else(|| token["content"].as_str())?;
    Some(name.to_owned())
}

/// The names of the special tokens that a post-processor puts before and after a text.
fn frame(processor: &Value) -> [Vec<String>; 2] {
    let mut frame = [Vec::new(), Vec::new()];
    let parts = match processor["processors"].as_array() {
        Some(parts) => parts.iter().collect(),
        None => vec![processor],
    };
    for part in parts {
        let mut side = 0;
        for piece in part["single"].as_array().into_iter().flatten() {
            match piece["SpecialToken"]["id"].as_str() {
                Some(name) => frame[side].push(name.to_owned()),
                None => side = 1,
            }
        }
        // The post-processors of BERT and RoBERTa.
        for (own, side) in [("cls", 0), ("sep", 1)] {
            frame[side].extend(part[own][0].as_str().map(str::to_owned));
        }
    }
    frame
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(config: &Value, tokenizer: &Value) -> Vec<String> {
        let parts: TokenizerParts = serde_json::from_value(tokenizer.clone()).unwrap();
        let warnings = compared(config.as_object().unwrap(), &parts, true).into_iter();
        let field = |warning: String| warning.split('`').nth(1).unwrap_or_default().to_owned();
        warnings.map(field).collect()
    }

    fn file() -> Value {
        json!({
            "added_tokens": [
                {"id": 0, "content": "<s>", "special": true}, {"id": 1, "content": "</s>", "special": true},
                {"id": 9, "content": "<tool>", "special": false},
            ],
            "normalizer": null,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
            "post_processor": {"type": "TemplateProcessing", "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
            ]},
            "decoder": {"type": "ByteLevel"},
        })
    }

    #[test]
    fn settings_that_agree_give_no_warning() {
        let config = json!({
            "bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": true, "add_eos_token": false,
            "add_prefix_space": false, "clean_up_tokenization_spaces": true, "do_lower_case": false,
            "added_tokens_decoder": {
                "0": {"content": "<s>", "special": true}, "9": {"content": "<tool>", "special": false},
            },
            "extra": "field", "legacy": null,
        });
        assert_eq!(fields(&config, &file()), Vec::<String>::new());
        let absent = json!({"bos_token": null, "add_bos_token": null, "add_eos_token": true, "add_prefix_space": null});
        assert_eq!(fields(&absent, &file()), Vec::<String>::new());
    }

    #[test]
    fn settings_that_disagree_are_reported() {
        let config = json!({
            "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": false, "add_eos_token": true,
            "add_prefix_space": true, "do_lower_case": true,
            "added_tokens_decoder": {
                "2": {"content": "<s>", "special": true}, "9": {"content": "<tool>", "special": true},
                "10": {"content": "<more>", "special": false},
            },
        });
        let expected = [
            "add_bos_token",
            "add_eos_token",
            "do_lower_case",
            "add_prefix_space",
            "added_tokens_decoder.2",
            "added_tokens_decoder.9",
            "added_tokens_decoder.10",
        ];
        assert_eq!(fields(&config, &file()), expected);
        let mut unigram = file();
        unigram["decoder"] = json!({"type": "Metaspace"});
        let cleaned = json!({"clean_up_tokenization_spaces": true});
        assert_eq!(fields(&cleaned, &unigram), ["clean_up_tokenization_spaces"]);
        let mut bert = file();
        bert["normalizer"] = json!({"type": "BertNormalizer", "lowercase": true, "strip_accents": null, "handle_chinese_chars": true});
        let cased =
            json!({"do_lower_case": false, "strip_accents": false, "tokenize_chinese_chars": true});
        assert_eq!(fields(&cased, &bert), ["do_lower_case", "strip_accents"]);
    }
}
