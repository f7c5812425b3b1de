//! HellaSwag and LAMBADA agree with `transformers` for the same model, tokenizer and items (make_tasks.py).

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::support::{AssertText, CommandOutput, Sandbox, close, fixtures};

fn fixture(name: &str) -> PathBuf {
    fixtures().join("tasks").join(name)
}

fn expected(task: &str) -> Value {
    let text = fs::read_to_string(fixture("expected.json")).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    all[task].clone()
}

fn ask(sandbox: &Sandbox, task: &str, file: &Path, more: &str) -> CommandOutput {
    let (model, task) = (fixture("model"), format!("--{task}"));
    let args = [
        "eval",
        model.to_str().unwrap(),
        &task,
        file.to_str().unwrap(),
    ];
    sandbox.run(args.into_iter().chain(more.split_whitespace()))
}

fn ask_own(task: &str, more: &str) -> CommandOutput {
    let file = fixture(&format!("{task}.jsonl"));
    ask(&Sandbox::new(), task, &file, more)
}

/// The output for HellaSwag's items, of which some are longer than the model's context of 64 tokens.
#[track_caller]
fn of_hellaswag(more: &str) -> String {
    let ran = ask_own("hellaswag", more);
    let warning = "warning: 10 of 92 texts are longer than the context of 64 tokens, and were scored without their beginning\n";
    assert_eq!((ran.code, &*ran.stderr), (Some(0), warning), "{ran}");
    ran.stdout
}

#[test]
fn hellaswag_matches_the_reference() {
    let expected = expected("hellaswag");
    for more in ["--json", "--json --batch 1", "--json --batch 7"] {
        let found: Value = serde_json::from_str(&of_hellaswag(more)).unwrap();
        assert_eq!(found["items"], 12);
        for convention in ["llm_c", "lm_evaluation_harness"] {
            for (metric, value) in expected[convention].as_object().unwrap() {
                close(&found[convention][metric], value, 1e-12);
            }
        }
        let answers = expected["answers"].as_array().unwrap();
        for (at, expected) in answers.iter().enumerate() {
            let found = &found["answers"][at];
            assert_eq!(found["label"], expected["label"]);
            for convention in ["llm_c", "lm_evaluation_harness"] {
                let (found, expected) = (&found[convention], &expected[convention]);
                assert_eq!(found["choice"], expected["choice"], "{at} {convention}");
                assert_eq!(
                    found["choice_norm"], expected["choice_norm"],
                    "{at} {convention}"
                );
                let sums = expected["log_likelihoods"].as_array().unwrap();
                for (ending, sum) in sums.iter().enumerate() {
                    close(&found["log_likelihoods"][ending], sum, 1e-4);
                }
            }
        }
    }
}

#[test]
fn lambada_matches_the_reference() {
    let expected = expected("lambada");
    let found: Value = ask_own("lambada", "--json").json();
    for metric in ["acc", "acc_stderr"] {
        close(&found[metric], &expected[metric], 1e-12);
    }
    for metric in ["perplexity", "perplexity_stderr"] {
        close(&found[metric], &expected[metric], 1e-4);
    }
    for (at, expected) in expected["answers"].as_array().unwrap().iter().enumerate() {
        let found = &found["answers"][at];
        assert_eq!(found["greedy"], expected["greedy"], "{at}");
        close(&found["log_likelihood"], &expected["log_likelihood"], 1e-4);
    }
}

/// The values in `expected.json`, rounded.
#[test]
fn a_report_as_text_has_standard_errors() {
    let shown = |value: &Value, error: &Value, digits: usize| {
        let [value, error] = [value, error].map(|value| value.as_f64().unwrap());
        format!("{value:.digits$} ± {error:.digits$}")
    };
    let text = of_hellaswag("");
    assert!(text.starts_with("  HellaSwag, 12 items\n"), "{text}");
    let expected_swag = expected("hellaswag");
    for (name, key) in [
        ("llm.c", "llm_c"),
        ("lm-evaluation-harness", "lm_evaluation_harness"),
    ] {
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with(name))
            .unwrap();
        let of = &expected_swag[key];
        for metric in ["acc", "acc_norm"] {
            let figure = shown(&of[metric], &of[format!("{metric}_stderr")], 4);
            line.assert_has(&figure);
        }
    }
    let text = ask_own("lambada", "").ok();
    let of = expected("lambada");
    assert!(
        text.contains(&shown(&of["acc"], &of["acc_stderr"], 4)),
        "{text}"
    );
    let perplexity = shown(&of["perplexity"], &of["perplexity_stderr"], 2);
    text.assert_has(&perplexity);
}

#[test]
fn a_limit_takes_the_first_items() {
    let all = expected("lambada");
    let found: Value = ask_own("lambada", "--limit 1 --json").json();
    assert_eq!(found["items"], 1);
    let first = &all["answers"][0]["log_likelihood"];
    close(&found["answers"][0]["log_likelihood"], first, 1e-4);
    assert_eq!(
        found["acc_stderr"],
        Value::Null,
        "one item says nothing about others"
    );
    let text = ask_own("lambada", "--limit 1").ok();
    assert!(
        text.contains("LAMBADA, 1 items") && !text.contains('±'),
        "{text}"
    );
}

#[test]
fn a_shorter_window_keeps_the_end_of_the_context() {
    let sandbox = Sandbox::new();
    let passages = ["aaaa cccc the bees", "bbbb dddd the bees"];
    let lines = passages.map(|text| format!("{}\n", json!({"text": text})));
    sandbox.write("two.jsonl", lines.concat());
    let asked = |more: &str| ask(&sandbox, "lambada", Path::new("two.jsonl"), more);
    let both = |ran: CommandOutput| {
        assert_eq!(ran.code, Some(0), "{ran}");
        let found: Value = serde_json::from_str(&ran.stdout).unwrap();
        [0, 1].map(|at| found["answers"][at]["log_likelihood"].as_f64().unwrap())
    };
    // The smallest window that fits the last word. Only the preceding token of the context fits, too, and it
    // is the same in both items.
    let least = (1..9)
        .map(|tokens| asked(&format!("--json --seq-len {tokens}")))
        .find(|ran| ran.code == Some(0));
    let least = least.unwrap();
    let warning = "warning: 2 of 2 texts are longer than the context of ";
    assert!(least.stderr.starts_with(warning), "{least}");
    let [a, b] = both(least);
    assert!((a / b - 1.0).abs() < 1e-6, "{a} and {b}");
    let whole = asked("--json");
    assert_eq!(whole.stderr, "");
    let [a, b] = both(whole);
    assert!((a / b - 1.0).abs() > 1e-3, "{a} and {b} after other words");
}

#[test]
fn broken_files_are_reported_with_the_line() {
    let sandbox = Sandbox::new();
    let item = |name: &str, change: fn(&mut Value)| {
        let text = fs::read_to_string(fixture("hellaswag.jsonl")).unwrap();
        let mut item: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        change(&mut item);
        sandbox.write(name, format!("{text}\n{item}\n"));
    };
    item("label.jsonl", |item| item["label"] = json!(4));
    item("unpublished.jsonl", |item| item["label"] = json!(""));
    item("ending.jsonl", |item| item["endings"] = json!(["one"]));
    item("ctx.jsonl", |item| item["ctx"] = json!(7));
    item("endings.jsonl", |item| item["endings"] = json!([1, 2]));
    sandbox.write("short.jsonl", "{\"ind\": 1}");
    sandbox.write("list.jsonl", "[1]");
    sandbox.write("cut.jsonl", "{\"ind\": 1,\n");
    sandbox.write("empty.jsonl", "\n \n");
    sandbox.write("word.jsonl", "{\"text\": \"word\"}\n");
    let unicode = b"{\"text\": \"two words\"}\n{\"text\": \"\xff\"}\n";
    sandbox.write("unicode.jsonl", unicode);
    let long = format!("{{\"text\": \"a {}\"}}\n", "xyz".repeat(40));
    sandbox.write("long.jsonl", long);
    sandbox.check_messages("eval_tasks");
}

#[test]
fn models_without_a_matching_tokenizer_are_rejected() {
    let sandbox = Sandbox::with_char_model();
    sandbox.write("l.jsonl", "{\"text\": \"hello WORLD\"}\n");
    sandbox.ok("export run --out hf");
    fs::remove_file(sandbox.path("hf/tokenizer.json")).unwrap();
    sandbox.check_messages("eval_tokenizers");
}
