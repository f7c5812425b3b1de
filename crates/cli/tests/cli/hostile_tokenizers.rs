//! `tokenizer.json` files designed to exhaust memory or time: each is harmless or rejected with field, value
//! and limit.

use serde_json::{Value, json};

use super::hostile_templates::{expanded, rows};
use super::support::Sandbox;

/// A tokenizer of two letters.
fn letters() -> Value {
    json!({
        "version": "1.0", "truncation": null, "padding": null, "post_processor": null,
        "added_tokens": [], "normalizer": null, "pre_tokenizer": null, "decoder": {"type": "Fuse"},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": {"a": 0, "b": 1, " ": 2}, "merges": [],
        },
    })
}

fn added(id: usize, content: &str, normalized: bool) -> Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": normalized, "special": true})
}

fn attacks() -> Vec<(&'static str, Value, Option<&'static str>)> {
    let mut attacks = Vec::new();
    for (name, attack) in rows(include_str!("../hostile_tokenizers.txt")) {
        let (fields, error) = attack.split_once(" =>").unwrap();
        let mut file = letters();
        merge(&mut file, serde_json::from_str(&expanded(fields)).unwrap());
        attacks.push((name, file, Some(error.trim()).filter(|it| !it.is_empty())));
    }
    let mut periodic = letters();
    periodic["added_tokens"] = (0..90)
        .map(|n| added(3 + n, &"a".repeat(167 + n), false))
        .collect();
    attacks.push(("periodic added tokens", periodic, None));
    attacks
}

/// Sets fields of a file. A model of another type replaces the file's.
fn merge(file: &mut Value, fields: Value) {
    let Value::Object(fields) = fields else {
        panic!("{fields}");
    };
    for (name, value) in fields {
        match name == "model" && value.get("type").is_none() {
            true => merge(&mut file[name], value),
            false => file[name] = value,
        }
    }
}

#[test]
fn hostile_tokenizers_are_refused_or_harmless() {
    let sandbox = Sandbox::new();
    sandbox.write("text.txt", "a".repeat(50_000) + " " + &"ab".repeat(25_000));
    let mut failures = Vec::new();
    for (name, file, refused) in attacks() {
        sandbox.write("hostile/tokenizer.json", file.to_string());
        let line = "tokenizer stats text.txt --tokenizer hostile";
        let Some(output) = sandbox.limited(line, b"") else {
            failures.push(format!("{name}: ran for too long"));
            continue;
        };
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let fine = match refused {
            Some(message) => {
                output.status.code() == Some(1)
                    && stderr.contains(message)
                    && stderr.contains("tokenizer.json")
            }
            None => matches!(output.status.code(), Some(0 | 1)),
        };
        if !fine {
            let shown: String = stderr.chars().take(400).collect();
            failures.push(format!("{name}: {}: {shown}", output.status));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    sandbox.write("hostile/tokenizer.json", letters().to_string());
    let output = sandbox
        .limited("tokenizer stats text.txt --tokenizer hostile", b"")
        .unwrap();
    assert!(output.status.success());
}
