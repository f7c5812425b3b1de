//! Commands that take a model.

use std::fs;

use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};

use super::support::Sandbox;
use super::support::model::{tiny, write_run};

#[test]
fn text_is_generated_after_the_prompt() {
    let sandbox = Sandbox::with_char_model();
    let line = "generate run --prompt hello --max-new-tokens 20 --seed 3";
    let text = sandbox.ok(line);
    assert!(
        text.starts_with("hello") && text.ends_with('\n'),
        "{text:?}"
    );
    assert_eq!(text.chars().count(), 5 + 20 + 1);
    assert_eq!(sandbox.ok(line), text, "the same seed makes the same text");
    assert_ne!(sandbox.ok(&line.replace("--seed 3", "--seed 4")), text);
}

#[test]
fn json_output_holds_the_generated_tokens() {
    let sandbox = Sandbox::with_char_model();
    let line = "generate run --prompt hello --max-new-tokens 12 --temperature 0";
    let made: Value = sandbox.json(&format!("{line} --json"));
    assert_eq!(made["tokens"].as_array().unwrap().len(), 12);
    let text = made["text"].as_str().unwrap();
    assert_eq!(sandbox.ok(line), format!("hello{text}\n"));
}

#[test]
fn without_a_prompt_a_new_document_starts() {
    let sandbox = Sandbox::with_char_model();
    let text = sandbox.ok("generate run --max-new-tokens 3");
    assert!(text.starts_with('\n'), "{text:?}");
    assert_eq!(text.chars().count(), 1 + 3 + 1, "{text:?}");
    write_run(
        &sandbox.path("gpt2"),
        &tiny(50_257),
        gpt2_spec(&sandbox).as_ref(),
        &[1],
    );
    let made: Value = sandbox.json("generate gpt2 --max-new-tokens 3 --json");
    assert_eq!(made["tokens"].as_array().unwrap().len(), 3);
}

fn gpt2_spec(sandbox: &Sandbox) -> Option<emberlm_tokenizer::TokenizerSpec> {
    sandbox.ok("prepare text.txt --out gpt2-data --tokenizer gpt2");
    Some(sandbox.spec("gpt2-data"))
}

#[test]
fn a_model_without_a_tokenizer_prints_ids() {
    let sandbox = Sandbox::new();
    write_run(&sandbox.path("run"), &tiny(11), None, &[1]);
    let line = "generate run --tokens 1,2 --max-new-tokens 5 --temperature 0";
    let made: Value = sandbox.json(&format!("{line} --json"));
    assert_eq!(made["text"], Value::Null);
    let ids = sandbox.ok(line);
    let ids: Vec<u32> = ids
        .trim_end()
        .split(',')
        .map(|id| id.parse().unwrap())
        .collect();
    assert_eq!(made["tokens"], json!(ids));
}

#[test]
fn the_newest_complete_checkpoint_is_used() {
    let sandbox = Sandbox::new();
    write_run(&sandbox.path("run"), &tiny(11), None, &[1, 2, 10]);
    let about = |model: &str| -> Value { sandbox.json(&format!("info {model} --json")) };
    assert_eq!(about("run")["about"], "a checkpoint after 10 steps");
    fs::remove_file(sandbox.path("run/checkpoints/step-00000010/manifest.json")).unwrap();
    let ran = sandbox.words("info run --json");
    assert!(
        ran.stderr
            .starts_with("warning: run/checkpoints/step-00000010 is not a complete checkpoint"),
        "{ran}"
    );
    let older: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(older["about"], "a checkpoint after 2 steps");
    assert_eq!(
        about("run/checkpoints/step-00000001")["about"],
        "a checkpoint after 1 steps"
    );
}

#[test]
fn an_evaluation_covers_the_split() {
    let sandbox = Sandbox::with_char_model();
    let report: Value = sandbox.json("eval run --data data --json");
    let mut keys: Vec<&String> = report.as_object().unwrap().keys().collect();
    keys.sort();
    let expected = [
        "bits_per_byte",
        "bytes",
        "context",
        "documents",
        "loss",
        "perplexity",
        "split",
        "stride",
        "tokens",
        "window",
        "windows",
    ];
    assert_eq!(keys, expected);
    // 360 characters, a tenth of them for validation. The first one is not predicted.
    assert_eq!(report["tokens"], 35);
    let number = |name: &str| report[name].as_f64().unwrap();
    // With initial weights, all 12 characters are about equally probable.
    assert!((number("loss") - 12f64.ln()).abs() < 0.1, "{report}");
    assert!((number("perplexity") - number("loss").exp()).abs() < 1e-9);
    // Each of the 35 characters is one byte.
    let bits = number("loss") / std::f64::consts::LN_2;
    assert!((number("bits_per_byte") - bits).abs() < 1e-9);
    let single: Value = sandbox.json("eval run --data data --json --batch 1");
    assert!((number("loss") - single["loss"].as_f64().unwrap()).abs() < 1e-5);
    let train: Value = sandbox.json("eval run --data data --json --split train");
    assert_eq!(train["tokens"], 323);
}

#[test]
fn an_evaluation_as_text() {
    let text = Sandbox::with_char_model().ok("eval run --data data");
    let names: Vec<&str> = text.lines().map(|line| line[..15].trim()).collect();
    let expected = ["loss", "perplexity", "bits per byte", "tokens", "windows"];
    assert_eq!(names, expected);
}

#[test]
fn logits_are_a_tensor_of_the_sequence() {
    let sandbox = Sandbox::with_char_model();
    sandbox.ok("logits run --tokens 1,2,3 --out a.safetensors");
    let bytes = sandbox.bytes("a.safetensors");
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(tensors.names(), ["logits"]);
    let logits = tensors.tensor("logits").unwrap();
    assert_eq!(
        (logits.dtype(), logits.shape()),
        (Dtype::F32, [3, 12].as_slice())
    );
}

#[cfg(all(feature = "flex", feature = "ndarray"))]
#[test]
fn backends_agree() {
    let sandbox = Sandbox::with_char_model();
    let loss = |backend: &str| {
        let line = format!("eval run --data data --json --backend {backend}");
        let report: Value = sandbox.json(&line);
        report["loss"].as_f64().unwrap()
    };
    assert!((loss("flex") - loss("ndarray")).abs() < 1e-5);
}
