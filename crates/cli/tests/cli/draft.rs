//! `generate --draft`: a smaller draft model.

use serde_json::Value;

use super::support::Sandbox;
use super::support::model::{tiny, write_run};

/// A run `run`, and a smaller one `small` with one block and different weights.
pub fn with_two_models() -> Sandbox {
    let sandbox = Sandbox::with_char_model();
    let spec = sandbox.spec("data");
    let mut small = tiny(spec.vocab_size);
    small.n_layers = 1;
    write_run(&sandbox.path("small"), &small, Some(&spec), &[7]);
    sandbox
}

#[test]
fn the_text_is_the_same_in_fewer_passes() {
    let sandbox = with_two_models();
    let line = "generate run --prompt hello --temperature 0 --max-new-tokens 30 --json";
    let alone: Value = sandbox.json(line);
    assert!(alone.get("draft").is_none());
    for (draft, all) in [("small", false), ("run", true)] {
        let drafted: Value = sandbox.json(&format!("{line} --draft {draft} --draft-tokens 2"));
        for field in ["tokens", "text", "finish"] {
            assert_eq!(drafted[field], alone[field], "{draft}");
        }
        let [made, taken, passes] =
            ["guesses", "taken", "passes"].map(|field| drafted["draft"][field].as_u64().unwrap());
        assert_eq!(taken + passes, 30, "{drafted}");
        assert_eq!(taken == made, all, "{drafted}");
    }
}

#[test]
fn draft_acceptance_is_reported() {
    let sandbox = with_two_models();
    let line = "generate run --prompt hello --temperature 0 --max-new-tokens 3 --draft run";
    let ran = sandbox.words(line);
    let expected = "2 of 2 draft tokens were accepted (100%): 3 tokens in 1 passes\n";
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (Some(0), expected),
        "{ran}"
    );
    assert!(ran.stdout.starts_with("hello"), "{ran}");
}

#[test]
fn incompatible_draft_models_are_rejected() {
    let sandbox = with_two_models();
    sandbox.ok("prepare text.txt --out bytes --tokenizer byte");
    let spec = sandbox.spec("bytes");
    let model = tiny(spec.vocab_size);
    write_run(&sandbox.path("other"), &model, Some(&spec), &[1]);
    write_run(&sandbox.path("wide"), &tiny(40), None, &[1]);
    sandbox.check_messages("draft");
}
