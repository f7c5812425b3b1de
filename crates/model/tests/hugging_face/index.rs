//! Weights in several files: the index and the files must agree.

use std::fs;

use serde_json::{Value, json};

use super::{Copied, bits, fixture, load};

const INDEX: &str = "model.safetensors.index.json";
const SECOND: &str = "model-00002-of-00003.safetensors";

fn error_with(change: impl FnOnce(&mut Value)) -> String {
    Copied::of("gpt2-untied").edit(INDEX, change).error()
}

#[test]
fn missing_shard_is_named() {
    let copied = Copied::of("gpt2-untied");
    let expected = format!("DIR: DIR/{INDEX}: it names the shard `{SECOND}`, which is not there");
    assert_eq!(copied.remove(SECOND).error(), expected);
}

#[test]
fn truncated_shard_is_named() {
    let copied = Copied::of("gpt2-untied");
    let whole = fs::read(copied.path(SECOND)).unwrap();
    for end in [0, 7, 100, whole.len() / 2, whole.len() - 1] {
        let error = copied.write(SECOND, &whole[..end]).error();
        let start = format!("DIR: DIR/{SECOND} is not a complete safetensors file: ");
        assert!(error.starts_with(&start), "{end}: {error}");
    }
}

/// Only files in the directory of the index are opened.
#[test]
fn shard_in_another_directory_is_rejected() {
    for shard in [
        "../model.safetensors",
        "../",
        "..",
        ".",
        "",
        "/etc/passwd",
        "./model-00002-of-00003.safetensors",
        "down/model-00002-of-00003.safetensors",
        "model-00002-of-00003.safetensors/",
    ] {
        let error = error_with(|index| {
            for shard_name in index["weight_map"].as_object_mut().unwrap().values_mut() {
                if *shard_name == SECOND {
                    *shard_name = json!(shard);
                }
            }
        });
        let expected = format!("DIR: DIR/{INDEX}: `{shard}` is not the name of a file beside it");
        assert_eq!(error, expected);
    }
    let error = error_with(|index| index["weight_map"]["lm_head.weight"] = json!("a\0b"));
    assert!(error.contains("which is not there"), "{error}");
}

#[test]
fn tensor_in_another_shard_is_named() {
    let error = error_with(|index| index["weight_map"]["lm_head.weight"] = json!(SECOND));
    let expected = format!("DIR: DIR/{INDEX}: tensor `lm_head.weight` is not in `{SECOND}`");
    assert_eq!(error, expected);
    let error = error_with(|index| index["weight_map"]["nothing.weight"] = json!(SECOND));
    let expected = format!("DIR: DIR/{INDEX}: tensor `nothing.weight` is not in `{SECOND}`");
    assert_eq!(error, expected);
}

#[test]
fn tensor_in_two_shards_is_named() {
    let copied = Copied::of("gpt2-untied");
    fs::copy(copied.path(SECOND), copied.path("model-again.safetensors")).unwrap();
    copied.edit(INDEX, |index| {
        index["weight_map"]["again"] = json!("model-again.safetensors");
    });
    let error = copied.error();
    assert!(
        error.starts_with("DIR: DIR/model-again.safetensors: tensor `"),
        "{error}"
    );
    assert!(error.ends_with("` is also in another shard"), "{error}");
}

#[test]
fn duplicate_tensor_in_index_is_rejected() {
    let copied = Copied::of("gpt2-untied");
    let good = fs::read_to_string(copied.path(INDEX)).unwrap();
    let twice = format!("\"weight_map\": {{\"lm_head.weight\": \"{SECOND}\",");
    let text = good.replace("\"weight_map\": {", &twice);
    assert_ne!(text, good);
    let error = copied.write(INDEX, text).error();
    let expected = format!("DIR: DIR/{INDEX}: the key \"lm_head.weight\" is repeated at line ");
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn invalid_index_is_rejected() {
    let copied = Copied::of("gpt2-untied");
    for (text, reason) in [
        ("", "EOF while parsing"),
        ("{", "EOF while parsing"),
        ("[]", "invalid length 0"),
        ("{}", "missing field `weight_map`"),
        (r#"{"weight_map": {}}"#, "it names no tensor"),
        (r#"{"weight_map": ["a"]}"#, "invalid type: sequence"),
        (r#"{"weight_map": {"a": 1}}"#, "invalid type: integer"),
        (r#"{"weight_map": null}"#, "invalid type: null"),
    ] {
        let error = copied.write(INDEX, text).error();
        let start = format!("DIR: DIR/{INDEX}: {reason}");
        assert!(error.starts_with(&start), "{text}: {error}");
    }
    copied.write(INDEX, [0xff]);
    assert!(copied.error().starts_with(&format!("DIR: DIR/{INDEX}: ")));
}

/// Tensors of a shard that the index does not list are used, or reported as unexpected.
#[test]
fn unlisted_tensor_is_read() {
    let copied = Copied::of("gpt2-untied");
    copied.edit(INDEX, |index| {
        let map = index["weight_map"].as_object_mut().unwrap();
        map.remove("transformer.h.0.ln_1.weight").unwrap();
    });
    let whole = load(&fixture("gpt2-untied"));
    assert_eq!(bits(&copied.load().unwrap()), bits(&whole));
}
