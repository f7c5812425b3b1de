//! `emberlm info`.

use std::process::Stdio;

use serde_json::Value;

use super::support::Sandbox;
use super::support::model::{tiny, write_run};

fn total(info: &Value) -> u64 {
    info["parameters"]["total"].as_u64().unwrap()
}

#[test]
fn published_counts() {
    let sandbox = Sandbox::new();
    for (preset, parameters) in [("gpt2", 124_439_808), ("pocket", 48_034_560)] {
        let info: Value = sandbox.words(&format!("info {preset} --json")).json();
        assert_eq!(total(&info), parameters);
        assert_eq!(info["memory_bytes"]["weights"], 4 * parameters);
        let parts = info["parameters"].as_object().unwrap();
        let sum: u64 = parts.values().map(|part| part.as_u64().unwrap()).sum();
        assert_eq!(sum, 2 * parameters, "the parts add up to the total");
    }
}

#[test]
fn a_preset_as_text() {
    insta::assert_snapshot!(Sandbox::new().words("info gpt2"), @"");
}

#[test]
fn the_dataset_s_vocabulary_is_assumed_and_said_so_or_given() {
    let sandbox = Sandbox::new();
    let assumed: Value = sandbox.words("info char-nano --json").json();
    assert_eq!(assumed["vocab_size_assumed"], true);
    assert_eq!(assumed["config"]["vocab_size"], 257);
    let text = sandbox.words("info char-nano").ok();
    assert!(
        text.contains("257  assumed: the dataset decides; another with --vocab-size N"),
        "{text}"
    );
    let given: Value = sandbox
        .words("info char-nano --vocab-size 65 --json")
        .json();
    assert_eq!(given["vocab_size_assumed"], false);
    assert_eq!(total(&assumed) - total(&given), (257 - 65) * 128);
}

#[test]
fn without_a_subject_the_presets_are_listed() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.words("info"), @"");
    let presets: Value = sandbox.words("info --json").json();
    assert_eq!(presets[0]["name"], "pocket");
    assert_eq!(presets[0]["parameters"], 48_034_560);
}

#[test]
fn a_trained_model_is_counted_alike() {
    let sandbox = Sandbox::new();
    write_run(&sandbox.path("run"), &tiny(11), None, &[3]);
    let info: Value = sandbox.words("info run --json").json();
    assert_eq!(info["config"]["d_model"], 16);
    assert_eq!(info["about"], "a checkpoint after 3 steps");
    let ran = sandbox.words("info run --vocab-size 5");
    insta::assert_snapshot!(ran, @"");
}

#[test]
fn an_illegal_vocabulary_is_refused() {
    insta::assert_snapshot!(Sandbox::new().words("info gpt2 --vocab-size 99999999999"), @"");
}

#[test]
fn what_is_neither_is_refused() {
    insta::assert_snapshot!(Sandbox::new().words("info gpt7"), @"");
}

#[test]
fn a_reader_who_leaves_is_no_failure() {
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
