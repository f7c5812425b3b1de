//! Int8 weights: nearly as accurate as the trained ones, stored and loaded, and rejected for training.

use std::fs;

use serde_json::{Value, json};

use super::support::Sandbox;
use super::support::train::trained;

#[test]
fn int8_perplexity_is_within_one_percent() {
    let sandbox = Sandbox::with_data();
    trained(sandbox.train("--data data --out run --set train.steps=40"));
    let eval = |more: &str| -> Value {
        sandbox
            .words(&format!("eval run --data data --json {more}"))
            .json()
    };
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
        sandbox.words(&format!("{line} {more}")).json()
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
    trained(sandbox.train("--preset char-nano --data data --out run --set train.steps=20"));
    let ran = sandbox.words("export run --out saved --weights int8");
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(ran.stdout.contains(" of int8 and f32 in 1 file"), "{ran}");
    assert_eq!(sandbox.words("export run --out plain").code, Some(0));
    let bytes = |folder: &str| fs::metadata(sandbox.path(folder).join("model.safetensors"));
    let [saved, plain] = ["saved", "plain"].map(|folder| bytes(folder).unwrap().len() as f64);
    assert!(saved < 0.8 * plain, "{saved} {plain}");

    let json = |line: &str| -> Value { sandbox.words(line).json() };
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
    assert!(about.contains("stored in int8"), "{about}");
    for line in [
        "attention saved --tokens 1,2,3 --json",
        "logits saved --tokens 1,2 --out l.safetensors",
    ] {
        assert_eq!(sandbox.words(line).code, Some(0), "{line}");
    }
    let server = sandbox.serve("serve saved");
    let body = json!({ "model": "saved", "prompt": [1, 2, 3], "max_tokens": 3 });
    assert_eq!(server.post("/v1/completions", &body).status, 200);

    // A second export keeps int8. Unpacking gives floating-point weights.
    assert_eq!(sandbox.words("export saved --out again").code, Some(0));
    let read = |folder: &str, file: &str| fs::read(sandbox.path(folder).join(file)).unwrap();
    assert!(read("again", "model.safetensors") == read("saved", "model.safetensors"));
    let [again, saved] = ["again", "saved"].map(|folder| read(folder, "config.json"));
    let fields = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap();
    assert_eq!(fields(&again), fields(&saved));
    let ran = sandbox.words("export saved --out floats --weights f32");
    assert!(ran.stdout.contains(" of f32 in 1 file"), "{ran}");
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
    trained(sandbox.train("--preset char-nano --data data --out run --set train.steps=2"));
    assert_eq!(
        sandbox.words("export run --out saved --weights int8").code,
        Some(0)
    );
    for line in [
        "train --from saved --data data --out tuned",
        "fit --from saved",
    ] {
        let ran = sandbox.words(line);
        assert_eq!(ran.code, Some(1), "{ran}");
        assert_eq!(
            ran.stderr,
            "error: saved: the weights are stored in int8, which cannot be trained\n\
             hint: train an adapter of it: --set train.adapter.rank=8\n\
             hint: or pass the model that it was exported from\n\
             hint: or unpack it, rounded as it is: emberlm export saved --weights f32 --out MODEL\n"
        );
    }
    assert!(!sandbox.path("tuned").exists());
    let config = sandbox.path("saved/config.json");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("emberlm-int8", "pack-quantized")).unwrap();
    let ran = sandbox.words("info saved");
    assert_eq!(ran.code, Some(1), "{ran}");
    let refused = "error: config.json: `quantization_config.quant_method` = missing: must be compressed-tensors\n\
         hint: give the model without quantization, with --weights int8 to hold it in a quarter of the memory\n";
    assert_eq!(ran.stderr, refused);
}

#[test]
fn unsupported_weights_options_are_rejected() {
    let sandbox = Sandbox::new();
    for command in ["train", "fit", "new --preset char-nano --out m"] {
        let ran = sandbox.words(&format!("{command} --weights int8"));
        assert_eq!(ran.code, Some(2), "{command}: {ran}");
        assert!(
            ran.stderr.contains("unexpected argument '--weights'"),
            "{ran}"
        );
    }
    for command in ["generate m", "eval m --data d"] {
        let ran = sandbox.words(&format!("{command} --weights int4"));
        assert_eq!(ran.code, Some(2), "{command}: {ran}");
        assert!(
            ran.stderr.contains("[possible values: f32, int8, f16,"),
            "{ran}"
        );
    }
}
