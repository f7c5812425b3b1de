//! Mistyped names, and names that other programs use for the same options.

use serde_json::Value;

use super::support::Sandbox;

#[test]
fn mistyped_names_suggest_the_nearest_one() {
    let sandbox = Sandbox::with_char_model();
    sandbox.write("run.toml", "[train]\nlr = 1e-3\n");
    sandbox.write("model.toml", "[model]\nn_head = 4\n");
    sandbox.check_messages("names");
}

#[test]
fn common_spellings_of_options_work() {
    let sandbox = Sandbox::with_char_model();
    let printed = sandbox.ok(
        "train --data data --lr 5e-4 --batch-size 2 --steps 1e4 --set model.seq_len=1_6 \
             --set train.evaluation.tokens=2e3 --print-config",
    );
    for line in [
        "learning_rate = 0.0005",
        "micro_batch = 2",
        "steps = 10000",
        "seq_len = 16",
        "tokens = 2000",
    ] {
        assert!(
            printed.contains(&format!("\n{line}\n")),
            "{line}: {printed}"
        );
    }
    let table: toml::Table = printed.parse().unwrap();
    let min = table["train"]["schedule"]["min_learning_rate"].as_float();
    // The preset decays from 5e-3 to 2e-4.
    assert!((min.unwrap() - 2e-5).abs() < 1e-12, "{printed}");
    let text = sandbox.words("generate run --temp 0 --max-tokens 3 --json");
    let text: Value = text.json();
    assert_eq!(text["tokens"].as_array().unwrap().len(), 3);
}
