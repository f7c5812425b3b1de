//! `emberlm embed` and `emberlm classify` against the states and logits of `transformers` in the model's fixtures.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::support::model::{encoder_fixture, write_encoder};
use super::support::tensors;
use super::support::{CommandOutput, Sandbox, edit_json};

/// A tensor of the fixture's expected results, f32 or i64, as f64.
fn expected(name: &str) -> Vec<f64> {
    let bytes = fs::read(encoder_fixture().join("expected.safetensors")).unwrap();
    match name {
        "ids" | "mask" => tensors::ids(&bytes, name)
            .iter()
            .map(|&x| x as f64)
            .collect(),
        _ => tensors::floats(&bytes, name)
            .into_iter()
            .map(f64::from)
            .collect(),
    }
}

/// The fixture with a tokenizer whose words are `w0`, `w1`, ….
pub fn model() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_encoder(folder.path());
    folder
}

/// The fixture's texts without their padding: 9, 6 and 1 tokens.
fn texts() -> Vec<String> {
    let (ids, mask) = (expected("ids"), expected("mask"));
    let rows = ids.chunks(9).zip(mask.chunks(9));
    let texts = rows.map(|(ids, mask)| {
        let kept = ids.iter().zip(mask).filter(|(_, kept)| **kept == 1.0);
        let words: Vec<String> = kept.map(|(id, _)| format!("w{id}")).collect();
        words.join(" ")
    });
    texts.collect()
}

/// Runs a command on a model with texts on stdin.
fn run(command: &str, model: &Path, options: &str, input: &str) -> CommandOutput {
    let line = format!("{command} {} {options}", model.display());
    Sandbox::new().feed(&line, input)
}

fn lines(ran: &CommandOutput) -> Vec<Value> {
    assert_eq!(ran.code, Some(0), "{ran}");
    let lines = ran.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn embeddings_are_the_normalized_means_of_the_states() {
    let (model, texts) = (model(), texts());
    let states = expected("states");
    let width = states.len() / 27;
    let found = lines(&run("embed", model.path(), "-", &(texts.join("\n") + "\n")));
    assert_eq!(found.len(), 3);
    for (text, line) in found.iter().enumerate() {
        let count = texts[text].split(' ').count();
        let states = &states[text * 9 * width..][..count * width];
        let sum: Vec<f64> = (0..width)
            .map(|i| states.iter().skip(i).step_by(width).sum())
            .collect();
        let length = sum.iter().map(|x| x * x).sum::<f64>().sqrt();
        let embedding = line["embedding"].as_array().unwrap();
        assert_eq!(embedding.len(), width);
        for (found, expected) in embedding.iter().zip(sum) {
            let error = found.as_f64().unwrap() - expected / length;
            assert!(error.abs() < 1e-6, "text {text}: {error}");
        }
    }
}

#[test]
fn labels_are_the_most_probable_ones_by_the_logits() {
    let (model, texts) = (model(), texts());
    let json = |text: &String| json!({"text": text}).to_string() + "\n";
    let input: String = texts.iter().map(json).collect();
    let found = lines(&run("classify", model.path(), "- --jsonl", &input));
    for (line, logits) in found.iter().zip(expected("logits").chunks(3)) {
        let best = (0..3)
            .max_by(|&a, &b| logits[a].total_cmp(&logits[b]))
            .unwrap();
        assert_eq!(line["label"], format!("LABEL_{best}"));
        let sum: f64 = logits.iter().map(|x| (x - logits[best]).exp()).sum();
        let error = line["probability"].as_f64().unwrap() - 1.0 / sum;
        assert!(error.abs() < 1e-6, "{line}: {error}");
    }
}

/// The scores of `transformers`' pipeline: `crates/model/tests/encoder/scores.rs` compares their functions.
#[test]
fn scores_follow_the_problem_type() {
    let texts = texts();
    let input = texts.join("\n") + "\n";
    let logits = expected("logits");
    for (problem, name) in [
        ("multi_label_classification", "probability"),
        ("regression", "score"),
    ] {
        let model = model();
        edit_json(&model.path().join("config.json"), |config| {
            config["problem_type"] = json!(problem);
        });
        let found = lines(&run("classify", model.path(), "-", &input));
        for (line, logits) in found.iter().zip(logits.chunks(3)) {
            let best = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let expected = match problem {
                "regression" => best,
                _ => 1.0 / (1.0 + (-best).exp()),
            };
            let error = line[name].as_f64().unwrap() - expected;
            assert!(error.abs() < 1e-5, "{problem} {line}: {error}");
            assert_eq!(line.as_object().unwrap().len(), 2, "{line}");
        }
    }
}

#[test]
fn one_label_has_a_probability_by_its_logit() {
    let model = model();
    edit_json(&model.path().join("config.json"), |config| {
        config["id2label"] = json!({"0": "toxic"});
        config["label2id"] = json!({"toxic": 0});
    });
    // The first label of the classifier.
    let file = model.path().join("model.safetensors");
    let bytes = fs::read(&file).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let kept = tensors.tensors().into_iter().map(|(name, tensor)| {
        let mut shape = tensor.shape().to_vec();
        let mut data = tensor.data();
        if name.starts_with("classifier.") {
            data = &data[..data.len() / shape[0]];
            shape[0] = 1;
        }
        let view = safetensors::tensor::TensorView::new(tensor.dtype(), shape, data).unwrap();
        (name, view)
    });
    let written = safetensors::serialize(kept, None).unwrap();
    fs::write(&file, written).unwrap();
    let input = texts().join("\n") + "\n";
    let found = lines(&run("classify", model.path(), "-", &input));
    for (line, logits) in found.iter().zip(expected("logits").chunks(3)) {
        assert_eq!(line["label"], "toxic");
        let error = line["probability"].as_f64().unwrap() - 1.0 / (1.0 + (-logits[0]).exp());
        assert!(error.abs() < 1e-6, "{line}: {error}");
    }
}

#[test]
fn long_texts_are_truncated_with_a_warning() {
    let model = model();
    let text = ["w5"; 40].join(" ");
    let output = run("embed", model.path(), "- --with-text", &text);
    assert_eq!(lines(&output)[0]["text"], text);
    output.says("1 of 1 texts were truncated to 32 tokens");
}

#[test]
fn bad_input_and_other_models_are_refused() {
    let sandbox = Sandbox::new();
    write_encoder(&sandbox.path("model"));
    sandbox.check_messages("encoder");
}
