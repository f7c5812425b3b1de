//! Weights of 8 bits: as good as the trained ones, and never where something is trained.

use serde_json::Value;

use super::support::Sandbox;
use super::support::train::trained;

#[test]
fn perplexity_is_that_of_the_trained_weights_within_a_hundredth() {
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

#[test]
fn what_is_trained_or_saved_has_its_own_weights() {
    let sandbox = Sandbox::new();
    for command in [
        "train",
        "fit",
        "export m --out o",
        "new --preset char-nano --out m",
    ] {
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
        assert!(ran.stderr.contains("[possible values: f32, int8]"), "{ran}");
    }
}
