//! Token selection in `generate`: penalties, bias, log-probabilities, stop strings and constraints.

use serde::Deserialize;
use serde_json::Value;

use super::support::Sandbox;
use super::support::model::{tiny, write_run};
use super::support::tensors::floats;

/// A run `bytes` with a byte-level model.
fn with_byte_model() -> Sandbox {
    let sandbox = Sandbox::with_text("hello small world\n".repeat(20), "byte");
    let spec = sandbox.spec("data");
    write_run(&sandbox.path("bytes"), &tiny(257), Some(&spec), &[1]);
    sandbox
}

#[derive(Deserialize)]
struct GenerationOutput {
    tokens: Vec<u32>,
    text: Option<String>,
    finish: String,
    logprobs: Option<Vec<TokenLogprob>>,
}

#[derive(Deserialize)]
struct TokenLogprob {
    id: u32,
    logprob: f64,
    alternatives: Vec<Alternative>,
}

#[derive(Deserialize)]
struct Alternative {
    id: u32,
    logprob: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pet {
    kind: String,
    legs: u8,
}

const SCHEMA: &str = r#"{"type": "object", "properties": {"kind": {"enum": ["cat", "bird"]},
    "legs": {"type": "integer", "minimum": 2, "maximum": 4}}, "required": ["kind", "legs"], "additionalProperties": false}"#;

#[test]
fn json_follows_a_schema_of_the_command_line_or_a_file() {
    let sandbox = with_byte_model();
    sandbox.write("pet.json", SCHEMA);
    let common = ["generate", "bytes", "--prompt", "A pet: ", "--json"];
    for seed in ["1", "2", "3"] {
        let made = |schema: &str| -> GenerationOutput {
            let more = ["--seed", seed, "--json-schema", schema];
            sandbox.run(common.iter().chain(&more)).json()
        };
        let (inline, file) = (made(SCHEMA), made("pet.json"));
        assert_eq!(inline.tokens, file.tokens);
        assert_eq!(inline.finish, "stop");
        let text = inline.text.unwrap();
        let pet: Pet = serde_json::from_str(&text).unwrap();
        assert!(["cat", "bird"].contains(&pet.kind.as_str()), "{text}");
        assert!((2..=4).contains(&pet.legs), "{text}");
    }
    // A token limit that is too low leaves incomplete JSON, and the output reports it.
    let more = ["--max-new-tokens", "5", "--json-schema", "pet.json"];
    let made: GenerationOutput = sandbox.run(common.iter().chain(&more)).json();
    assert_eq!(
        (made.finish.as_str(), made.text.as_deref()),
        ("length", Some("{\"kin"))
    );
}

#[test]
fn text_matches_an_expression() {
    let sandbox = with_byte_model();
    let made = sandbox.words("generate bytes --tokens 65 --regex (ab|ba){2}-[0-9]");
    let text = made.ok();
    let digits = text.strip_suffix('\n').unwrap().strip_prefix("ab");
    let digits = digits
        .or_else(|| text.trim_end().strip_prefix("ba"))
        .unwrap();
    let digits = digits
        .strip_prefix("ab")
        .or_else(|| digits.strip_prefix("ba"));
    let digit = digits.unwrap().strip_prefix('-').unwrap();
    assert!(
        digit.len() == 1 && digit.as_bytes()[0].is_ascii_digit(),
        "{text}"
    );
}

#[test]
fn a_text_ends_before_a_stop_string() {
    let sandbox = Sandbox::with_char_model();
    let line = "generate run --prompt hello --max-new-tokens 30 --seed 4";
    let all: GenerationOutput = sandbox.json(&format!("{line} --json"));
    assert_eq!(all.finish, "length");
    let text = all.text.unwrap();
    // Characters are tokens here, so this stop string spans several tokens.
    let stop: String = text.chars().skip(9).take(3).collect();
    let expected = &text[..text.find(&stop).unwrap()];
    let with = |args: &[&str]| {
        let common = line.split(' ').chain(args.iter().copied());
        sandbox.run(common)
    };
    assert_eq!(with(&["--stop", &stop]).ok(), format!("hello{expected}\n"));
    let made: GenerationOutput = with(&["--stop", "nowhere", "--stop", &stop, "--json"]).json();
    assert_eq!(
        (made.text.as_deref(), made.finish.as_str()),
        (Some(expected), "stop")
    );
    assert_eq!(made.tokens, all.tokens[..expected.chars().count() + 3]);
    // A partial match of a stop string is printed at the end.
    let last: String = text.chars().skip(28).collect::<String>() + "?";
    assert_eq!(with(&["--stop", &last]).ok(), format!("hello{text}\n"));
}

/// Compares with the f64 log-softmax of the output of `logits`.
#[test]
fn log_probabilities_are_those_of_the_logits() {
    let sandbox = Sandbox::with_char_model();
    let line = "generate run --tokens 3,1 --max-new-tokens 4 --temperature 0.5 --json";
    let made: GenerationOutput = sandbox.json(&format!("{line} --logprobs 2"));
    let ids: Vec<String> = [3, 1]
        .iter()
        .chain(&made.tokens)
        .map(u32::to_string)
        .collect();
    let logits = format!(
        "logits run --tokens {} --out logits.safetensors",
        ids.join(",")
    );
    sandbox.ok(&logits);
    let values = floats(&sandbox.bytes("logits.safetensors"), "logits");
    let values: Vec<f64> = values.into_iter().map(f64::from).collect();
    let places = made.logprobs.unwrap();
    assert_eq!(places.len(), 4);
    for (at, place) in places.iter().enumerate() {
        let row = &values[(at + 1) * 12..][..12];
        let sum: f64 = row.iter().map(|x| x.exp()).sum();
        let close = |id: u32, logprob: f64| {
            let wanted = row[id as usize] - sum.ln();
            assert!(
                (logprob - wanted).abs() < 1e-4,
                "{id}: {logprob}, not {wanted}"
            );
        };
        assert_eq!(place.id, made.tokens[at]);
        close(place.id, place.logprob);
        assert_eq!(place.alternatives.len(), 2);
        place
            .alternatives
            .iter()
            .for_each(|one| close(one.id, one.logprob));
        let best = row.iter().copied().fold(f64::MIN, f64::max);
        assert_eq!(row[place.alternatives[0].id as usize], best);
    }
    let plain: Value = sandbox.json(line);
    assert!(plain.get("logprobs").is_none(), "{plain}");
    assert_eq!(
        serde_json::from_value::<Vec<u32>>(plain["tokens"].clone()).unwrap(),
        made.tokens
    );
}

/// Initial logits are close to each other, so a small penalty changes the choice.
#[test]
fn penalties_bias_and_min_p_affect_the_choice() {
    let sandbox = Sandbox::with_char_model();
    let line = "generate run --tokens 3 --max-new-tokens 12 --json";
    let made = |more: &str| {
        sandbox
            .json::<GenerationOutput>(&format!("{line} {more}"))
            .tokens
    };
    let greedy = made("--temperature 0");
    let mut all = made("--temperature 0 --frequency-penalty 2");
    all.sort_unstable();
    assert_eq!(all, (0..12).collect::<Vec<u32>>(), "each once");
    let mut all = made("--temperature 0 --presence-penalty 2");
    all.sort_unstable();
    assert_eq!(all, (0..12).collect::<Vec<u32>>(), "each once");
    assert_ne!(made("--temperature 0 --repetition-penalty 1000"), greedy);
    assert_eq!(made("--temperature 0 --logit-bias 7=100"), [7; 12]);
    let without = made(&format!("--temperature 0 --logit-bias {}=-100", greedy[0]));
    assert!(!without.contains(&greedy[0]), "{without:?}");
    assert_eq!(made("--temperature 1 --min-p 1"), greedy);
    assert_ne!(made("--temperature 1"), greedy);
}

#[test]
fn invalid_requests_are_rejected() {
    let sandbox = Sandbox::with_char_model();
    let spec = with_byte_model().spec("data");
    write_run(&sandbox.path("bytes"), &tiny(257), Some(&spec), &[1]);
    write_run(&sandbox.path("silent"), &tiny(11), None, &[1]);
    sandbox.check_messages("token_selection");
}
