//! `emberlm info`.

use std::process::Stdio;

use serde_json::Value;

use super::support::model::{tiny, write_run};
use super::support::{AssertText, Sandbox};

fn total(info: &Value) -> u64 {
    info["parameters"]["total"].as_u64().unwrap()
}

#[test]
fn published_counts() {
    let sandbox = Sandbox::new();
    for (preset, parameters) in [("gpt2", 124_439_808), ("pocket", 48_034_560)] {
        let info: Value = sandbox.json(&format!("info {preset} --json"));
        assert_eq!(total(&info), parameters);
        assert_eq!(info["memory_bytes"]["weights"], 4 * parameters);
        let parts = info["parameters"].as_object().unwrap();
        let sum: u64 = parts.values().map(|part| part.as_u64().unwrap()).sum();
        // A token uses all parameters, as without experts.
        assert_eq!(info["parameters"]["active"], parameters);
        assert_eq!(sum, 3 * parameters, "the parts add up to the total");
    }
}

#[test]
fn an_assumed_vocabulary_size_is_marked() {
    let sandbox = Sandbox::new();
    let assumed: Value = sandbox.json("info char-nano --json");
    assert_eq!(assumed["vocab_size_assumed"], true);
    assert_eq!(assumed["config"]["vocab_size"], 257);
    let text = sandbox.ok("info char-nano");
    text.assert_has("257  assumed: the dataset decides; another with --vocab-size N");
    let given: Value = sandbox.json("info char-nano --vocab-size 65 --json");
    assert_eq!(given["vocab_size_assumed"], false);
    assert_eq!(total(&assumed) - total(&given), (257 - 65) * 128);
}

#[test]
fn presets_are_listed_and_described() {
    let sandbox = Sandbox::new();
    sandbox.check_messages("info");
    let presets: Value = sandbox.json("info --json");
    assert_eq!(presets[0]["name"], "pocket");
    assert_eq!(presets[0]["parameters"], 48_034_560);
}

#[test]
fn trained_models_are_counted_like_presets() {
    let sandbox = Sandbox::new();
    write_run(&sandbox.path("run"), &tiny(11), None, &[3]);
    let info: Value = sandbox.json("info run --json");
    assert_eq!(info["config"]["d_model"], 16);
    assert_eq!(info["about"], "a checkpoint after 3 steps");
    sandbox.check_messages("info_run");
}

#[test]
fn a_closed_pipe_is_not_a_failure() {
    let sandbox = Sandbox::new();
    for line in ["info", "info gpt2 --json", "--help"] {
        let mut command = sandbox.command(line.split_whitespace());
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), stderr.as_str()),
            (Some(0), ""),
            "{line}"
        );
    }
}
