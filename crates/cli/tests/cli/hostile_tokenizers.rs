//! `tokenizer.json` files designed to exhaust memory or time: each is harmless or rejected with field, value
//! and limit.

use serde_json::{Value, json};

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

fn with(field: &str, value: Value) -> Value {
    let mut file = letters();
    file[field] = value;
    file
}

fn with_model(field: &str, value: Value) -> Value {
    let mut file = letters();
    file["model"][field] = value;
    file
}

fn added(id: u64, content: &str, normalized: bool) -> Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": normalized, "special": true})
}

fn sequence(kind: &str, part: &Value, count: usize) -> Value {
    json!({"type": "Sequence", (kind): vec![part.clone(); count]})
}

fn replace(pattern: Value, content: &str) -> Value {
    json!({"type": "Replace", "pattern": pattern, "content": content})
}

fn split(regex: &str) -> Value {
    json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false})
}

/// Nested sequences.
fn nested(kind: &str, depth: usize) -> Value {
    (0..depth).fold(
        json!({"type": "Sequence", (kind): []}),
        |part, _| json!({"type": "Sequence", (kind): [part]}),
    )
}

/// Names of attacks with their files and expected errors. `None` marks a harmless file.
fn attacks() -> Vec<(&'static str, Value, Option<&'static str>)> {
    let doubled = replace(json!({"String": "a"}), "aa");
    let a_to_b = replace(json!({"String": "a"}), &"b".repeat(40));
    let mut unigram = letters();
    unigram["model"] = json!({"type": "Unigram", "unk_id": 0, "byte_fallback": false,
        "vocab": [["a", -1.0], ["b", -1.0], ["a".repeat(100_000), -2.0]]});
    let mut word_piece = letters();
    word_piece["model"] = json!({"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 1_000_000_000_u64, "vocab": {"a": 0, "b": 1, "##a": 2}});
    let mut normalized = with("normalizer", a_to_b.clone());
    normalized["added_tokens"] = json!([added(3, &"a".repeat(200), true)]);
    let periodic: Vec<Value> = (0..90)
        .map(|n| added(3 + n, &"a".repeat(167 + n as usize), false))
        .collect();
    vec![
        (
            "long added token",
            with(
                "added_tokens",
                json!([added(3, &"a".repeat(80_000), false)]),
            ),
            Some("80000 bytes; the limit is 256"),
        ),
        (
            "long normalized token",
            normalized,
            Some("when it is normalized; the limit is 256"),
        ),
        (
            "periodic added tokens",
            with("added_tokens", json!(periodic)),
            None,
        ),
        (
            "large id",
            with("added_tokens", json!([added(4_000_000_000, "<x>", false)])),
            Some("the id 4000000000 is too large"),
        ),
        (
            "large id of the model",
            with_model("vocab", json!({"a": 0, "b": 4_000_000_000_u64})),
            Some("the id 4000000000 is too large"),
        ),
        (
            "doubling normalizers",
            with("normalizer", sequence("normalizers", &doubled, 40)),
            Some("times as long; the limit is 64"),
        ),
        (
            "too many normalizers",
            with(
                "normalizer",
                sequence("normalizers", &json!({"type": "Lowercase"}), 10_000),
            ),
            Some("more than 64 steps"),
        ),
        (
            "long content",
            with(
                "normalizer",
                replace(json!({"String": "a"}), &"b".repeat(1_000_000)),
            ),
            Some("1000000 times as long"),
        ),
        (
            "replaced nothing",
            with(
                "normalizer",
                replace(json!({"String": ""}), &"b".repeat(100)),
            ),
            Some("101 times as long"),
        ),
        (
            "replaced empty match",
            with(
                "normalizer",
                replace(json!({"Regex": "a*"}), &"b".repeat(100)),
            ),
            Some("101 times as long"),
        ),
        (
            "replaced lookahead",
            with(
                "normalizer",
                replace(json!({"Regex": "(?=a)"}), &"b".repeat(100)),
            ),
            Some("101 times as long"),
        ),
        (
            "long prefix",
            with(
                "normalizer",
                json!({"type": "Prepend", "prepend": "a".repeat(1_000_000)}),
            ),
            Some("`prepend` of `normalizer` has 1000000 bytes"),
        ),
        (
            "bytes of bytes",
            with(
                "pre_tokenizer",
                sequence(
                    "pretokenizers",
                    &json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}),
                    30,
                ),
            ),
            Some("times as long; the limit is 64"),
        ),
        (
            "deep normalizers",
            with("normalizer", nested("normalizers", 40)),
            Some("nests deeper than 8"),
        ),
        (
            "deep pre-tokenizers",
            with("pre_tokenizer", nested("pretokenizers", 40)),
            Some("nests deeper than 8"),
        ),
        (
            "deep decoders",
            with("decoder", nested("decoders", 40)),
            Some("nests deeper than 8"),
        ),
        (
            "doubling decoders",
            with("decoder", sequence("decoders", &doubled, 40)),
            Some("`decoder` can make a token"),
        ),
        (
            "repetitions",
            with("pre_tokenizer", split("((a{1000}){1000}){1000}")),
            Some("multiply to 1000000000"),
        ),
        (
            "long regular expression",
            with("pre_tokenizer", split(&"a?".repeat(50_000))),
            Some("regular expressions have 100000 bytes"),
        ),
        (
            "backtracking",
            with("pre_tokenizer", split(r"(?=(a+)+$)a|(a|aa)+(?!a)b")),
            None,
        ),
        (
            "backreference",
            with("pre_tokenizer", split(r"(a*)*\1b")),
            None,
        ),
        (
            "damaged map",
            with(
                "normalizer",
                json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
            ),
            Some("damaged"),
        ),
        (
            "large map",
            with(
                "normalizer",
                json!({"type": "Precompiled", "precompiled_charsmap": "A".repeat(8 << 20)}),
            ),
            Some("the limit is 2097152"),
        ),
        (
            "long token of Unigram",
            unigram,
            Some("`model.vocab` has 100000 bytes"),
        ),
        (
            "long words of WordPiece",
            word_piece,
            Some("`model.max_input_chars_per_word` is 1000000000"),
        ),
        (
            "long suffix",
            with_model("end_of_word_suffix", json!("a".repeat(1_000_000))),
            Some("`model.end_of_word_suffix` has 1000000 bytes"),
        ),
        (
            "stripped beginning",
            with(
                "decoder",
                json!({"type": "Strip", "content": "a", "start": u64::MAX, "stop": 0}),
            ),
            None,
        ),
        (
            "bytes for characters",
            with(
                "decoder",
                sequence("decoders", &json!({"type": "ByteFallback"}), 60),
            ),
            None,
        ),
    ]
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
