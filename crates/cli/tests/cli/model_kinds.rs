//! `new`, `info`, `logits` and `attention` of encoders and encoder–decoders. Expected weights and logits are those of
//! `transformers`, in the model's fixtures.

use std::fs;
use std::path::PathBuf;

use safetensors::SafeTensors;
use serde_json::{Value, json};

use super::encoder_decoder as encoder_decoders;
use super::support::{CommandOutput, Sandbox};

pub fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures")
}

/// The tensors of `attentions/NAME.safetensors`.
struct Expected(Vec<u8>);

impl Expected {
    fn read(name: &str) -> Self {
        Self(fs::read(fixtures().join(format!("attentions/{name}.safetensors"))).unwrap())
    }

    fn floats(&self, name: &str) -> Vec<f64> {
        let tensors = SafeTensors::deserialize(&self.0).unwrap();
        let data = tensors.tensor(name).unwrap().data().as_chunks::<4>().0;
        data.iter()
            .map(|x| f64::from(f32::from_le_bytes(*x)))
            .collect()
    }

    fn ids(&self, name: &str) -> Vec<u32> {
        let tensors = SafeTensors::deserialize(&self.0).unwrap();
        let data = tensors.tensor(name).unwrap().data().as_chunks::<8>().0;
        data.iter()
            .map(|id| i64::from_le_bytes(*id) as u32)
            .collect()
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
        let report: Value = sandbox.words(&line).json();
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
        let report: Value = sandbox.words(&line).json();
        assert_eq!(report["tokens"], json!(source));
        assert_eq!(report["target"], json!(target));
        check_heads(&report, &expected, "cross", source.len(), false);
        let report: Value = sandbox.words(&format!("{line} --of encoder")).json();
        check_heads(&report, &expected, "encoder", source.len(), false);
        let report: Value = sandbox.words(&format!("{line} --of decoder")).json();
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
        fs::read_to_string(sandbox.path("a.svg")).unwrap()
    };
    // Source: three words and the end. Target: the start token and two words.
    let labels = |svg: &str, text: &str| svg.lines().filter(|line| *line == text).count();
    let cross = draw("cross");
    assert!(cross.contains("Cross-attention of"), "{cross}");
    assert_eq!([labels(&cross, "w5"), labels(&cross, "w8")], [1, 1]);
    let encoder = draw("encoder");
    assert_eq!([labels(&encoder, "w5"), labels(&encoder, "w8")], [2, 0]);
    let decoder = draw("decoder");
    assert_eq!([labels(&decoder, "w5"), labels(&decoder, "w8")], [0, 2]);
    // Without a target, the model generates one.
    let line = format!("attention {model} --tokens 5,6,7,1 --json");
    let report: Value = sandbox.words(&line).json();
    let target: Value = sandbox
        .words(&format!(
            "generate {model} --tokens 5,6,7,1 --max-new-tokens 32 --json"
        ))
        .json();
    let shown = report["target"].as_array().unwrap();
    assert_eq!(json!(shown[1..]), target["tokens"]);
}

fn refused(output: CommandOutput, message: &str) {
    assert_eq!(output.code, Some(1), "{output}");
    assert!(output.stderr.contains(message), "{message}: {output}");
}

#[test]
fn options_of_other_kinds_are_refused() {
    let sandbox = Sandbox::with_char_model();
    let encoder = fixtures().join("encoders/bert-bare");
    let encoder = encoder.display();
    let target = fixtures().join("encoder_decoder/t5-untied");
    let target = target.display();
    for (line, message) in [
        (
            "attention run --tokens 1,2 --of cross".to_owned(),
            "--of is for encoder–decoders, and run is a decoder",
        ),
        (
            format!("attention {encoder} --tokens 1,2 --target-tokens 1"),
            "is an encoder\n",
        ),
        (
            format!("attention {encoder} --tokens 1"),
            "a single token attends only to itself",
        ),
        (
            format!("attention {encoder} --tokens 1,61"),
            "token 61 at position 1 is outside of the vocabulary of 61",
        ),
        (
            format!("attention {target} --tokens 1,2 --target-tokens 67"),
            "token 67 at position 0 is outside of the vocabulary of 67",
        ),
        (
            format!("attention {target} --tokens 1,2 --layer 2"),
            "layer 2 does not exist: the model has 2",
        ),
        (
            format!("attention {target} --prompt a"),
            "has no tokenizer, so it cannot read text",
        ),
        (
            format!("logits {encoder} --tokens 1,2 --out a.safetensors"),
            "has no head that computes logits",
        ),
        (
            format!("logits {target} --tokens 1,2 --out a.safetensors"),
            "is an encoder–decoder, which needs a target",
        ),
        (
            "logits run --tokens 1,2 --target-tokens 1 --out a.safetensors".to_owned(),
            "--target-tokens is for encoder–decoders, and run is none",
        ),
    ] {
        refused(sandbox.words(&line), message);
    }
    assert!(!sandbox.path("a.safetensors").exists());
}

#[test]
fn logits_are_those_of_transformers() {
    let sandbox = Sandbox::new();
    let read = |shape: &[usize]| {
        let bytes = fs::read(sandbox.path("out.safetensors")).unwrap();
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
    assert_eq!(sandbox.words(&line).ok(), shape);
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
        sandbox.words(&line).ok();
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
        let made = sandbox.words(&line).ok();
        let info: Value = sandbox.words(&format!("info {out} --json")).json();
        let count = info["parameters"]["total"].as_u64().unwrap();
        let digits: String = made.chars().filter(char::is_ascii_digit).collect();
        assert!(digits.ends_with(&count.to_string()), "{made}");
        assert_eq!(info["tokenizer"]["vocab_size"], 257);
    }
    let line = "attention decoder --prompt text --json";
    let report: Value = sandbox.words(line).json();
    assert_eq!(report["tokens"], json!("text".as_bytes()));
    assert_eq!(
        sandbox.words("embed encoder text.txt").ok().lines().count(),
        2
    );
    let target: Value = sandbox
        .words("generate t5 --prompt text --max-new-tokens 5 --json")
        .json();
    assert!(target["tokens"].as_array().unwrap().len() <= 5);
    // Another seed, other weights.
    sandbox
        .words("new --preset bert-nano --tokenizer byte --out other --seed 4")
        .ok();
    let vectors = |model: &str| sandbox.words(&format!("embed {model} text.txt")).ok();
    assert_ne!(vectors("encoder"), vectors("other"));
    let refused = |line: &str, message: &str| {
        let output = sandbox.words(line);
        assert_ne!(output.code, Some(0), "{line}");
        assert!(output.stderr.contains(message), "{output}");
    };
    refused(
        "new --preset t5-nano --out x",
        "the preset `t5-nano` takes its vocabulary from a dataset",
    );
    refused(
        "new --preset bert-nano --vocab-size 9 --set model.d_model=8 --out x",
        "--set is for decoders, and the preset `bert-nano` is none",
    );
    refused(
        "new --preset bert-nano --tokenizer byte --vocab-size 256 --out x",
        "--vocab-size 256: must be at least 257, the tokenizer's ids",
    );
    refused(
        "new --preset bert-nano --tokenizer char --out x",
        "char has no fixed vocabulary",
    );
    refused(
        "new --preset bert-nano --tokenizer byte --out encoder",
        "encoder",
    );
    assert!(!sandbox.path("x").exists());
}
