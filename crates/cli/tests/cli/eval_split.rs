//! The loss on a split: bits per byte for any tokenizer, and the loss by position.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::support::close;
use super::support::model::{tiny, write_run};
use super::support::{AssertText, Sandbox};

fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// A training split `data` of two documents, and a model with initial weights for its vocabulary.
fn with_documents(tokenizer: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("docs/a.txt", FIRST);
    sandbox.write("docs/b.txt", SECOND);
    let line = format!("prepare docs --out data --val-fraction 0 --tokenizer {tokenizer}");
    let prepared = sandbox.run(line.split(' '));
    assert_eq!(prepared.code, Some(0), "{prepared}");
    let spec = sandbox.spec("data");
    write_run(&sandbox.path("run"), &tiny(spec.vocab_size), None, &[1]);
    sandbox
}

const FIRST: &str = "a naïve café: 漢字 🔥\n";
const SECOND: &str = "one more text\n";

#[test]
fn bits_per_byte_cover_the_predicted_text() {
    // BPE and byte tokenizers put an end-of-text token before each document. The first one is neither
    // predicted nor text.
    let whole = (FIRST.len() + SECOND.len()) as u64;
    for (tokenizer, bytes) in [("gpt2", whole), ("byte", whole), ("char", whole - 1)] {
        let sandbox = with_documents(tokenizer);
        let found: Value = sandbox.json("eval run --data data --split train --json");
        assert_eq!(found["bytes"], bytes, "{tokenizer}");
        let number = |name: &str| found[name].as_f64().unwrap();
        let nats = number("loss") * number("tokens");
        let bits = nats / 2f64.ln() / bytes as f64;
        assert!(
            (number("bits_per_byte") - bits).abs() < 1e-9,
            "{tokenizer}: {found}"
        );
        if tokenizer == "byte" {
            assert_eq!(found["tokens"], whole + 1);
        }
        let text = sandbox.ok("eval run --data data --split train");
        text.assert_has(&format!("over {bytes} bytes of text"));
    }
}

#[test]
fn a_manifest_without_text_length_gives_no_bits_per_byte() {
    let sandbox = with_documents("byte");
    sandbox.edit("data/dataset.json", |manifest| {
        manifest["splits"]["train"]["bytes"] = 0.into();
    });
    let found: Value = sandbox.json("eval run --data data --split train --json");
    assert_eq!(found["bytes"], FIRST.len() + SECOND.len());
}

#[test]
fn lossy_tokenizers_have_no_bits_per_byte() {
    let file = fixture("tokenizer/tests/fixtures/files/wordpiece.json");
    let sandbox = with_documents(file.to_str().unwrap());
    let found: Value = sandbox.json("eval run --data data --split train --json");
    assert_eq!(
        [&found["bits_per_byte"], &found["bytes"]],
        [&Value::Null; 2]
    );
    let text = sandbox.ok("eval run --data data --split train");
    text.assert_lacks("bits per byte");
}

/// Compares with `documents` in expected.json, written by make_tasks.py.
#[test]
fn the_loss_by_position_matches_transformers() {
    let tasks = fixture("model/tests/fixtures/tasks");
    let read = |name: &str| fs::read_to_string(tasks.join(name)).unwrap();
    let expected: Value = serde_json::from_str(&read("expected.json")).unwrap();
    let expected = &expected["documents"];
    let passages = read("lambada.jsonl");
    let sandbox = Sandbox::new();
    for at in expected["passages"].as_array().unwrap() {
        let line = passages.lines().nth(at.as_u64().unwrap() as usize).unwrap();
        let passage: Value = serde_json::from_str(line).unwrap();
        sandbox.write(
            &format!("docs/{at:0>2}.txt"),
            passage["text"].as_str().unwrap(),
        );
    }
    let model = tasks.join("model");
    let model = model.to_str().unwrap();
    let prepare = [
        "prepare",
        "docs",
        "--out",
        "data",
        "--val-fraction",
        "0",
        "--tokenizer",
        model,
    ];
    let prepared = sandbox.run(prepare);
    assert_eq!(prepared.code, Some(0), "{prepared}");
    let window = expected["window"].to_string();
    let eval = [
        "eval",
        model,
        "--data",
        "data",
        "--split",
        "train",
        "--seq-len",
        &window,
        "--documents",
        "stream",
    ];
    for more in [["--per-position", "--json"].as_slice(), &["--json"]] {
        let found: Value = sandbox.run(eval.iter().chain(more)).json();
        for figure in ["loss", "bits_per_byte"] {
            close(&found[figure], &expected[figure], 1e-5);
        }
        assert_eq!(found["bytes"], expected["bytes"]);
        assert_eq!(found["tokens"], expected["tokens"]);
        if more.len() == 1 {
            assert_eq!(found["positions"], Value::Null);
            continue;
        }
        let positions = expected["positions"].as_array().unwrap();
        assert_eq!(
            found["positions"].as_array().unwrap().len(),
            positions.len()
        );
        for (at, expected) in positions.iter().enumerate() {
            let found = &found["positions"][at];
            close(&found["loss"], &expected["loss"], 1e-5);
            assert_eq!(found["tokens"], expected["tokens"], "{at}");
        }
    }

    let text = sandbox.run(eval.iter().chain(&["--per-position"])).ok();
    let table: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.contains("position"))
        .collect();
    let names: Vec<&str> = table[1..].iter().map(|line| line[2..8].trim()).collect();
    assert_eq!(names, ["0", "1", "2–3", "4–7", "8–11"], "{text}");
    let sum = |from: usize, to: usize| -> (f64, u64) {
        let part = &expected["positions"].as_array().unwrap()[from..to];
        let tokens = |p: &Value| p["tokens"].as_u64().unwrap();
        let all: u64 = part.iter().map(tokens).sum();
        let nats: f64 = part
            .iter()
            .map(|p| p["loss"].as_f64().unwrap() * tokens(p) as f64)
            .sum();
        (nats / all as f64, all)
    };
    for (line, (from, to)) in table[1..]
        .iter()
        .zip([(0, 1), (1, 2), (2, 4), (4, 8), (8, 12)])
    {
        let (loss, tokens) = sum(from, to);
        let mut cells = line.split_whitespace().skip(1);
        let shown: f64 = cells.next().unwrap().parse().unwrap();
        assert!((shown - loss).abs() < 1e-3, "{line}: {loss}");
        assert_eq!(cells.next().unwrap(), tokens.to_string(), "{line}");
    }
}

#[test]
fn the_default_window_is_the_context_in_training_and_evaluation() {
    let sandbox = Sandbox::with_data();
    let ran = sandbox.trains("--data data --out run --steps 2 --set train.seq_len=16");
    let trained = &sandbox.events("run", "evaluation")[0];
    let found: Value = sandbox.json("eval run --data data --json");
    close(&found["loss"], &trained["loss"], 1e-6);
    assert_eq!(found["tokens"], trained["tokens"]);
    assert_eq!([&found["window"], &found["stride"]], [32, 32]);
    // Both print the window.
    let windows = "in windows of 32, stride 32";
    let line = format!("validation: {} tokens {windows}\n", trained["tokens"]);
    ran.says(&line);
    let text = sandbox.ok("eval run --data data");
    text.assert_has(&format!("predicted, {windows}\n"));
    let shorter: Value = sandbox.json("eval run --data data --seq-len 16 --json");
    assert_eq!([&shorter["window"], &shorter["stride"]], [16, 16]);
    assert_ne!(shorter["loss"], found["loss"]);
}

#[test]
fn several_datasets_are_evaluated_as_each_of_them() {
    let sandbox = with_documents("byte");
    sandbox.write("more.txt", "an other text, which is longer\n");
    sandbox.ok("prepare more.txt --out more --val-fraction 0 --tokenizer byte");
    let line = "eval run --split train --per-position --json --data";
    let all: Value = sandbox.json(&format!("{line} data more"));
    let found = all["datasets"].as_array().unwrap();
    assert_eq!(found.len(), 2, "{all}");
    for (name, found) in ["data", "more"].into_iter().zip(found) {
        let mut one: Value = sandbox.json(&format!("{line} {name}"));
        one["data"] = name.into();
        assert_eq!(*found, one);
    }
    let text = sandbox.ok("eval run --split train --data data more");
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines.len(), 3, "{text}");
    for (line, found) in lines[1..].iter().zip(found) {
        assert_eq!(line[0], found["data"]);
        assert_eq!(line[1], format!("{:.4}", found["loss"].as_f64().unwrap()));
    }
    let refused = sandbox.refusal("eval run --split train --data data none");
    assert!(refused.contains("none"), "{refused}");
}
