//! `generate --num-samples`: several samples of one prompt.

use serde_json::Value;

use super::draft::with_two_models;
use super::support::Sandbox;

const LINE: &str = "generate run --prompt hello --seed 3 --max-new-tokens 12";
const SEPARATOR: &str = "---------------\n";

#[test]
fn the_first_sample_is_the_text_without_the_option() {
    let sandbox = Sandbox::with_char_model();
    let single = sandbox.ok(LINE);
    assert!(
        single.starts_with("hello") && !single.contains(SEPARATOR),
        "{single}"
    );
    let printed = sandbox.ok(&format!("{LINE} --num-samples 4"));
    let samples: Vec<&str> = printed.split(SEPARATOR).collect();
    assert_eq!((samples.len(), samples[0]), (4, single.as_str()));
    for (at, sample) in samples.iter().enumerate() {
        assert!(
            sample.starts_with("hello") && sample.ends_with('\n'),
            "{sample:?}"
        );
        assert!(!samples[..at].contains(sample), "{sample:?} occurs twice");
    }
    // More samples do not change the first ones.
    let fewer = sandbox.ok(&format!("{LINE} --num-samples 2"));
    assert_eq!(fewer, samples[..2].join(SEPARATOR));
    assert_eq!(sandbox.ok(&format!("{LINE} --num-samples 1")), single);
}

#[test]
fn json_is_a_list() {
    let sandbox = Sandbox::with_char_model();
    let single: Value = sandbox.json(&format!("{LINE} --json --logprobs 2"));
    let list: Vec<Value> = sandbox.json(&format!("{LINE} --json --logprobs 2 --num-samples 3"));
    assert_eq!((list.len(), &list[0]), (3, &single));
    assert!(list[1]["tokens"] != list[0]["tokens"] && list[2]["tokens"] != list[1]["tokens"]);
    let one: Vec<Value> = sandbox.json(&format!("{LINE} --json --logprobs 2 --num-samples 1"));
    assert_eq!(one, [single]);
}

#[test]
fn samples_have_draft_models_and_constraints() {
    let sandbox = with_two_models();
    for options in ["--draft small", "--regex [a-z]{3}", "--stop e"] {
        let line = format!("{LINE} {options} --json");
        let single: Value = sandbox.json(&line);
        let list: Vec<Value> = sandbox.json(&format!("{line} --num-samples 2"));
        assert_eq!((list.len(), &list[0]), (2, &single), "{options}");
    }
}

#[test]
fn speeds_are_those_of_all_samples() {
    let sandbox = Sandbox::with_char_model();
    let ran = sandbox.succeeds(&format!("{LINE} --num-samples 3 --verbose"));
    ran.says("prompt: 15 tokens in ");
    ran.says("generated: 36 tokens in ");
}

#[test]
fn searches_and_greedy_choices_have_one_sample() {
    Sandbox::with_char_model().check_messages("num_samples");
}
