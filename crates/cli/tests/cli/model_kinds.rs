//! `new`, `info`, `logits` and `attention` of encoders and encoder–decoders. Expected weights and logits are those of
//! `transformers`, in the model's fixtures.

use std::fs;

use safetensors::SafeTensors;
use serde_json::{Value, json};

use super::encoder_decoder as encoder_decoders;
use super::support::tensors::{floats, ids};
use super::support::{AssertText, Sandbox, fixtures};

/// The tensors of `attentions/NAME.safetensors`.
struct Expected(Vec<u8>);

impl Expected {
    fn read(name: &str) -> Self {
        Self(fs::read(fixtures().join(format!("attentions/{name}.safetensors"))).unwrap())
    }

    fn floats(&self, name: &str) -> Vec<f64> {
        let values = floats(&self.0, name);
        values.into_iter().map(f64::from).collect()
    }

    fn ids(&self, name: &str) -> Vec<u32> {
        let ids = ids(&self.0, name);
        ids.into_iter().map(|id| id as u32).collect()
    }
}

fn list(ids: &[u32]) -> String {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    ids.join(",")
}

/// The mean over queries of `of(query, weights)` for one head's weights `[queries, keys]`.
fn mean(weights: &[f64], keys: usize, skipped: usize, of: impl Fn(usize, &[f64]) -> f64) -> f64 {
    let rows = weights.chunks(keys).enumerate().skip(skipped);
    let values: Vec<f64> = rows.map(|(query, row)| of(query, row)).collect();
    values.iter().sum::<f64>() / values.len() as f64
}

/// Compares the summary of each head with the weights of `transformers`.
fn check_heads(report: &Value, expected: &Expected, kind: &str, keys: usize, causal: bool) {
    let heads = report["heads"].as_array().unwrap();
    let skipped = usize::from(causal);
    let mut compared = 0;
    for head in heads {
        let weights = expected.floats(&format!("{kind}.{}", head["layer"]));
        let count = 1 + heads
            .iter()
            .map(|head| head["head"].as_u64().unwrap())
            .max()
            .unwrap();
        let size = weights.len() / count as usize;
        let weights = &weights[head["head"].as_u64().unwrap() as usize * size..][..size];
        let entropy = |_, row: &[f64]| row.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum();
        let distance = |i: usize, row: &[f64]| {
            let terms = row.iter().enumerate();
            terms.map(|(j, p)| p * (i as f64 - j as f64).abs()).sum()
        };
        let mut close = |name: &str, expected: f64| {
            let error = head[name].as_f64().unwrap() - expected;
            assert!(error.abs() < 1e-5, "{kind} {name}: {head}, not {expected}");
            compared += 1;
        };
        close("entropy", mean(weights, keys, skipped, entropy));
        close("first", mean(weights, keys, skipped, |_, row| row[0]));
        if kind == "cross" {
            assert!(head.get("distance").is_none() && head.get("previous").is_none());
            continue;
        }
        close("distance", mean(weights, keys, skipped, distance));
        close("previous", mean(weights, keys, 1, |i, row| row[i - 1]));
    }
    assert!(compared >= 4);
}

#[test]
fn attention_of_encoders_is_that_of_transformers() {
    let sandbox = Sandbox::new();
    for name in ["bert-masked", "distilbert-sequence", "roberta-token"] {
        let expected = Expected::read(name);
        let ids = expected.ids("ids");
        let model = fixtures().join("encoders").join(name);
        let line = format!(
            "attention {} --tokens {} --json",
            model.display(),
            list(&ids)
        );
        let report: Value = sandbox.json(&line);
        assert_eq!(report["tokens"], json!(ids));
        check_heads(&report, &expected, "layer", ids.len(), false);
    }
}

#[test]
fn attention_of_encoder_decoders_is_that_of_transformers() {
    let sandbox = Sandbox::new();
    for name in ["t5-relu", "t5-untied"] {
        let expected = Expected::read(name);
        let (source, target) = (expected.ids("source"), expected.ids("target"));
        let model = fixtures().join("encoder_decoder").join(name);
        let line = format!(
            "attention {} --tokens {} --target-tokens {} --json",
            model.display(),
            list(&source),
            // The start token is added.
            list(&target[1..]),
        );
        let report: Value = sandbox.json(&line);
        assert_eq!(report["tokens"], json!(source));
        assert_eq!(report["target"], json!(target));
        check_heads(&report, &expected, "cross", source.len(), false);
        let report: Value = sandbox.json(&format!("{line} --of encoder"));
        check_heads(&report, &expected, "encoder", source.len(), false);
        let report: Value = sandbox.json(&format!("{line} --of decoder"));
        assert_eq!(report["tokens"], json!(target));
        check_heads(&report, &expected, "decoder", target.len(), true);
    }
}

#[test]
fn pictures_show_every_key_that_a_query_may_attend_to() {
    let (sandbox, model) = (Sandbox::new(), encoder_decoders::with_tokenizer());
    let model = model.path().to_str().unwrap();
    let draw = |of: &str| {
        let options = [
            "--prompt", "w5 w6 w7", "--target", "w8 w9", "--layer", "0", "--head", "0",
        ];
        let command = [
            &["attention", model, "--of", of, "--out", "a.svg"][..],
            &options,
        ]
        .concat();
        sandbox.run(command).ok();
        sandbox.text("a.svg")
    };
    // Source: three words and the end. Target: the start token and two words.
    let labels = |svg: &str, text: &str| svg.lines().filter(|line| *line == text).count();
    let cross = draw("cross");
    cross.assert_has("Cross-attention of");
    assert_eq!([labels(&cross, "w5"), labels(&cross, "w8")], [1, 1]);
    let encoder = draw("encoder");
    assert_eq!([labels(&encoder, "w5"), labels(&encoder, "w8")], [2, 0]);
    let decoder = draw("decoder");
    assert_eq!([labels(&decoder, "w5"), labels(&decoder, "w8")], [0, 2]);
    // Without a target, the model generates one.
    let line = format!("attention {model} --tokens 5,6,7,1 --json");
    let report: Value = sandbox.json(&line);
    let target: Value = sandbox.json(&format!(
        "generate {model} --tokens 5,6,7,1 --max-new-tokens 32 --json"
    ));
    let shown = report["target"].as_array().unwrap();
    assert_eq!(json!(shown[1..]), target["tokens"]);
}

#[test]
fn logits_are_those_of_transformers() {
    let sandbox = Sandbox::new();
    let read = |shape: &[usize]| {
        let bytes = sandbox.bytes("out.safetensors");
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let tensor = tensors.tensor("logits").unwrap();
        assert_eq!(tensor.shape(), shape);
        let data = tensor.data().as_chunks::<4>().0.iter();
        data.map(|x| f64::from(f32::from_le_bytes(*x)))
            .collect::<Vec<_>>()
    };
    let same = |found: &[f64], expected: &[f64]| {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-5, "{found}, not {expected}");
        }
    };
    let expected = Expected::read("t5-untied");
    let (source, target) = (expected.ids("source"), expected.ids("target"));
    let model = fixtures().join("encoder_decoder/t5-untied");
    // The last token of the target is only predicted, so any is as good.
    let line = format!(
        "logits {} --tokens {} --target-tokens {},5 --out out.safetensors",
        model.display(),
        list(&source),
        list(&target[1..]),
    );
    let shape = format!("out.safetensors: logits [{}, 67]\n", target.len());
    assert_eq!(sandbox.ok(&line), shape);
    same(&read(&[target.len(), 67]), &expected.floats("logits"));

    // The fixture's first text is not padded, and of one segment with RoBERTa and DistilBERT.
    for (name, shape) in [
        ("distilbert-sequence", vec![3]),
        ("distilbert-masked", vec![9, 59]),
        ("roberta-token", vec![9, 5]),
    ] {
        let folder = fixtures().join("encoders").join(name);
        let bytes = fs::read(folder.join("expected.safetensors")).unwrap();
        let fixture = Expected(bytes);
        let ids = &fixture.ids("ids")[..9];
        let line = format!(
            "logits {} --tokens {} --out out.safetensors",
            folder.display(),
            list(ids)
        );
        sandbox.ok(&line);
        let found = read(&shape);
        same(&found, &fixture.floats("logits")[..found.len()]);
    }
}

#[test]
fn new_models_of_all_kinds_read_text() {
    let sandbox = Sandbox::new();
    sandbox.write("text.txt", "one text\nanother text\n");
    for (preset, out, size) in [
        ("char-nano", "decoder", ""),
        ("bert-nano", "encoder", ""),
        ("t5-nano", "t5", " --vocab-size 300"),
    ] {
        let line = format!("new --preset {preset} --tokenizer byte{size} --out {out} --seed 3");
        let made = sandbox.ok(&line);
        let info: Value = sandbox.json(&format!("info {out} --json"));
        let count = info["parameters"]["total"].as_u64().unwrap();
        let digits: String = made.chars().filter(char::is_ascii_digit).collect();
        assert!(digits.ends_with(&count.to_string()), "{made}");
        assert_eq!(info["tokenizer"]["vocab_size"], 257);
    }
    let line = "attention decoder --prompt text --json";
    let report: Value = sandbox.json(line);
    assert_eq!(report["tokens"], json!("text".as_bytes()));
    assert_eq!(sandbox.ok("embed encoder text.txt").lines().count(), 2);
    let target: Value = sandbox.json("generate t5 --prompt text --max-new-tokens 5 --json");
    assert!(target["tokens"].as_array().unwrap().len() <= 5);
    // Another seed, other weights.
    sandbox.ok("new --preset bert-nano --tokenizer byte --out other --seed 4");
    let vectors = |model: &str| sandbox.ok(&format!("embed {model} text.txt"));
    assert_ne!(vectors("encoder"), vectors("other"));
    sandbox.check_messages("new");
}
