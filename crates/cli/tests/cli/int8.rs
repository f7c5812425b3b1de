//! Int8 weights: nearly as accurate as the trained ones, stored and loaded, and rejected for training.

use std::fs;

use serde_json::{Value, json};

use super::support::{AssertText, Sandbox};

#[test]
fn int8_perplexity_is_within_one_percent() {
    let sandbox = Sandbox::with_data();
    sandbox.trains("--data data --out run --set train.steps=40");
    let eval =
        |more: &str| -> Value { sandbox.json(&format!("eval run --data data --json {more}")) };
    let perplexity = |found: &Value| found["perplexity"].as_f64().unwrap();
    let (f32, int8) = (eval(""), eval("--weights int8"));
    let ratio = perplexity(&int8) / perplexity(&f32);
    assert!((ratio - 1.0).abs() < 0.01, "{f32} {int8}");
    assert_ne!(ratio, 1.0, "nothing was rounded");
    assert_eq!(int8["tokens"], f32["tokens"]);
    assert_eq!(eval("--weights f32"), f32);
    let by_position = eval("--weights int8 --per-position");
    let difference = perplexity(&by_position) / perplexity(&int8) - 1.0;
    assert!(difference.abs() < 1e-5, "{by_position} {int8}");

    let generate = |more: &str| -> Value {
        let line = "generate run --prompt 1 --max-new-tokens 40 --seed 2 --json";
        sandbox.json(&format!("{line} {more}"))
    };
    let made = generate("--weights int8");
    assert_eq!(made["tokens"].as_array().unwrap().len(), 40);
    assert_eq!(generate("--weights int8"), made);
}

/// To every command, a directory written by `export --weights int8` is bit-identical to the model quantized
/// on load.
#[test]
fn a_saved_int8_model_equals_quantization_on_load() {
    let sandbox = Sandbox::with_data();
    sandbox.trains("--preset char-nano --data data --out run --set train.steps=20");
    let ran = sandbox.succeeds("export run --out saved --weights int8");
    ran.prints(" of int8 and f32 in 1 file");
    sandbox.succeeds("export run --out plain");
    let bytes = |folder: &str| fs::metadata(sandbox.path(folder).join("model.safetensors"));
    let [saved, plain] = ["saved", "plain"].map(|folder| bytes(folder).unwrap().len() as f64);
    assert!(saved < 0.8 * plain, "{saved} {plain}");

    let json = |line: &str| -> Value { sandbox.json(line) };
    let eval = "--data data --json";
    let expected = json(&format!("eval run {eval} --weights int8"));
    assert_eq!(
        json(&format!("eval saved {eval}"))["loss"],
        expected["loss"]
    );
    assert_eq!(
        json(&format!("eval saved {eval} --weights int8"))["loss"],
        expected["loss"]
    );
    let generate = "--prompt 1 --max-new-tokens 20 --seed 2 --json --logprobs 3";
    let expected = json(&format!("generate run {generate} --weights int8"));
    assert_eq!(json(&format!("generate saved {generate}")), expected);
    let draft = json("generate run --prompt 1 --max-new-tokens 9 --draft saved --json");
    assert_eq!(draft["tokens"].as_array().unwrap().len(), 9);

    let about = json("info saved --json")["about"].to_string();
    about.assert_has("stored in int8");
    for line in [
        "attention saved --tokens 1,2,3 --json",
        "logits saved --tokens 1,2 --out l.safetensors",
    ] {
        sandbox.succeeds(line);
    }
    let server = sandbox.serve("serve saved");
    let body = json!({ "model": "saved", "prompt": [1, 2, 3], "max_tokens": 3 });
    assert_eq!(server.post("/v1/completions", &body).status, 200);

    // A second export keeps int8. Unpacking gives floating-point weights.
    sandbox.succeeds("export saved --out again");
    let read = |folder: &str, file: &str| fs::read(sandbox.path(folder).join(file)).unwrap();
    assert!(read("again", "model.safetensors") == read("saved", "model.safetensors"));
    let [again, saved] = ["again", "saved"].map(|folder| read(folder, "config.json"));
    let fields = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap();
    assert_eq!(fields(&again), fields(&saved));
    let ran = sandbox.words("export saved --out floats --weights f32");
    ran.prints(" of f32 in 1 file");
    assert!(!String::from_utf8_lossy(&read("floats", "config.json")).contains("quantization"));
    let loss = |line: &str| json(line)["loss"].as_f64().unwrap();
    let [floats, int8] = ["floats", "saved"].map(|model| loss(&format!("eval {model} {eval}")));
    assert!((floats - int8).abs() < 1e-4, "{floats} {int8}");
    // Loading with `--weights f32` gives the same weights.
    let unpacked = loss(&format!("eval saved {eval} --weights f32"));
    assert_eq!(unpacked, floats);
}

#[test]
fn training_from_int8_weights_is_rejected() {
    let sandbox = Sandbox::with_data();
    sandbox.trains("--preset char-nano --data data --out run --set train.steps=2");
    sandbox.succeeds("export run --out saved --weights int8");
    sandbox.succeeds("export run --out other --weights int8");
    let config = sandbox.text("other/config.json");
    let config = config.replace("emberlm-int8", "pack-quantized");
    sandbox.write("other/config.json", config);
    sandbox.check_messages("int8");
}
