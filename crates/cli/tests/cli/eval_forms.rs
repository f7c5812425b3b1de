//! One set of weights has one loss: in a run, a checkpoint, an adapter on its base, a merged or exported directory and a
//! GGUF file; and the run prints it as its validation loss.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::fine_tuning::with_base;
use super::support::{AssertText, Sandbox, close};

/// Sequences of training that are shorter than the context and than the documents.
const TRAIN: &str = "train --from base --learning-rate 1e-2 --renderer plain --steps 4 --set train.seq_len=24 \
    --set train.micro_batch=2 --set train.accumulation=1";

fn eval(sandbox: &Sandbox, line: &str) -> Value {
    sandbox.json(&format!("eval {line} --json"))
}

/// Adds the dataset `docs` of several documents, and `text`, one long text.
fn with_texts(sandbox: &Sandbox) {
    let line =
        |i: usize| json!({"text": format!("document {i} ").repeat(1 + i % 5)}).to_string() + "\n";
    sandbox.write("docs.jsonl", (0..60).map(line).collect::<String>());
    sandbox.write("text.txt", "a long text without documents\n".repeat(40));
    for (file, out) in [("docs.jsonl", "docs"), ("text.txt", "text")] {
        let line = format!("prepare {file} --tokenizer base --out {out}");
        sandbox.ok(&line);
    }
}

#[test]
fn one_adapter_has_one_loss_in_every_form() {
    let sandbox = with_base();
    with_texts(&sandbox);
    for (data, documents, context) in [
        ("talks", "isolated", "document"),
        ("docs", "isolated", "document"),
        ("text", "stream", "window"),
    ] {
        sandbox.succeeds(&format!(
            "{TRAIN} --data {data} --adapter lora --out run-{data}"
        ));
        let evaluations = sandbox.events(&format!("run-{data}"), "evaluation");
        let expected = &evaluations.last().unwrap()["loss"];
        sandbox.ok(&format!("export run-{data} --out peft-{data}"));
        sandbox.ok(&format!("merge run-{data} --out merged-{data}"));
        let gguf = format!("export merged-{data} --format gguf --type f32 --out {data}.gguf");
        sandbox.ok(&gguf);
        let mut protocols = Vec::new();
        for form in [
            format!("run-{data}"),
            format!("run-{data}/checkpoints/step-00000004"),
            format!("base --adapter run-{data}"),
            format!("base --adapter peft-{data}"),
            format!("peft-{data}"),
            format!("merged-{data}"),
            format!("{data}.gguf"),
        ] {
            let mut found = eval(&sandbox, &format!("{form} --data {data}"));
            close(&found["loss"], expected, 1e-5);
            assert_eq!(found["documents"], documents, "{form}");
            assert_eq!(found["context"], context, "{form}");
            for figure in ["loss", "perplexity", "bits_per_byte"] {
                found.as_object_mut().unwrap().remove(figure);
            }
            protocols.push(found);
        }
        assert!(
            protocols.windows(2).all(|two| two[0] == two[1]),
            "{protocols:?}"
        );
    }
}

#[test]
fn trained_weights_have_one_loss_in_every_form() {
    let sandbox = with_base();
    with_texts(&sandbox);
    for (data, packing) in [
        ("talks", "isolated"),
        ("talks", "stream"),
        ("docs", "best_fit"),
    ] {
        let line = format!("{TRAIN} --data {data} --documents {packing} --out run --ema 0.5");
        sandbox.succeeds(&line);
        let evaluations = sandbox.events("run", "evaluation");
        let expected = &evaluations.last().unwrap()["loss"];
        sandbox.ok("export run --out tuned");
        for form in ["run", "tuned"] {
            let found = eval(&sandbox, &format!("{form} --data {data}"));
            close(&found["loss"], expected, 1e-5);
        }
        for folder in ["run", "tuned"] {
            std::fs::remove_dir_all(sandbox.path(folder)).unwrap();
        }
    }
}

#[test]
fn the_protocol_is_printed() {
    let sandbox = with_base();
    with_texts(&sandbox);
    let shown = |line: &str| sandbox.ok(&format!("eval base {line}"));
    let text = shown("--data talks");
    text.assert_has("of isolated documents, stride ");
    text.assert_has("the context starts at the document's first token\n");
    let text = shown("--data text");
    text.assert_has("in windows of 96, stride 96");
    text.assert_has("the context starts at the window's first token\n");
    let text = shown("--data docs --seq-len 20");
    text.assert_has("in rows of 20 of isolated documents, stride 20");
    text.assert_has("are longer than a row and cut\n");
    let found = eval(&sandbox, "base --data docs --split train");
    assert_eq!(
        [
            &found["split"],
            &found["documents"],
            &found["cut_documents"]
        ],
        [&json!("train"), &json!("isolated"), &json!(0)]
    );
    let stream = eval(
        &sandbox,
        "base --data docs --split train --documents stream",
    );
    assert_eq!(stream["documents"], "stream");
    assert_eq!(stream["tokens"], found["tokens"]);
    assert_eq!(stream.get("cut_documents"), None);
    assert_ne!(stream["loss"], found["loss"]);
}

/// Losses by `transformers`, each text by itself: `make_isolated.py`.
#[test]
fn isolated_losses_are_those_of_transformers() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures");
    let read = |path: PathBuf| std::fs::read(path).unwrap();
    let expected: Value =
        serde_json::from_slice(&read(fixtures.join("isolated/expected.json"))).unwrap();
    let sandbox = Sandbox::new();
    let [model, template, talks, passages] = [
        "tasks/model",
        "isolated/talks.jinja",
        "isolated/talks.jsonl",
        "tasks/lambada.jsonl",
    ]
    .map(|name| fixtures.join(name).display().to_string());
    let prepare = |file: &str, out: &str, more: &[&str]| {
        let line = [
            "prepare",
            file,
            "--tokenizer",
            &model,
            "--out",
            out,
            "--val-fraction",
            "0",
        ];
        let ran = sandbox.run(line.iter().chain(more));
        assert_eq!(ran.code, Some(0), "{ran}");
    };
    prepare(&talks, "conversations", &["--chat-template", &template]);
    prepare(&passages, "documents", &[]);
    for name in ["conversations", "documents"] {
        let found: Value = sandbox
            .run(["eval", &model, "--data", name, "--split", "train", "--json"])
            .json();
        close(&found["loss"], &expected[name]["loss"], 1e-5);
        assert_eq!(found["tokens"], expected[name]["tokens"], "{name}");
    }
}

#[test]
fn the_adapter_is_an_option_of_every_command_that_opens_a_model() {
    let sandbox = with_base();
    sandbox.succeeds(&format!("{TRAIN} --data talks --adapter lora --out run"));
    sandbox.ok("export run --out peft");
    let logits = |form: &str| {
        sandbox.ok(&format!(
            "logits {form} --tokens 257,117,115 --out l.safetensors"
        ));
        let bytes = sandbox.bytes("l.safetensors");
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        tensors.tensor("logits").unwrap().data().to_vec()
    };
    let attention = |form: &str| -> Value {
        sandbox.json(&format!("attention {form} --tokens 257,117,115,98 --json"))
    };
    for adapter in ["run", "peft"] {
        let form = format!("base --adapter {adapter}");
        assert!(logits(&form) == logits("run"), "{form}");
        assert_eq!(attention(&form), attention("run"), "{form}");
        let info = sandbox.ok(&format!("info {form}"));
        info.assert_has("with the LoRA adapter ");
        info.assert_has("of rank 8");
        let bench = format!("bench {form} --prompt-tokens 4 --decode 2 --repeat 1 --json");
        let speeds: Value = sandbox.json(&bench);
        assert_eq!(speeds[0]["tests"].as_array().unwrap().len(), 2);
    }
    assert!(logits("base") != logits("run"));
    assert_ne!(attention("base"), attention("run"));
    // Each of several models is measured in a process that has the adapter, too.
    let bench = "bench base base --adapter peft --prompt-tokens 4 --decode 0 --repeat 1 --json";
    let speeds: Value = sandbox.json(bench);
    assert_eq!(speeds.as_array().unwrap().len(), 2);
}
