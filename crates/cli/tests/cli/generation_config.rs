//! A model's `generation_config.json` as the defaults of `generate`, `chat` and `serve`.

use std::fs;

use serde_json::{Value, json};

use super::serve::{ids, with_model};
use super::support::{AssertText, Sandbox};

/// A Hugging Face directory `model` with these recommended settings.
fn with_settings(settings: &Value) -> Sandbox {
    let sandbox = with_model(64, &[1]);
    sandbox.succeeds("export run --out model");
    sandbox.write("model/generation_config.json", settings.to_string());
    sandbox
}

fn tokens(sandbox: &Sandbox, line: &str) -> Vec<u64> {
    let made: Value = sandbox.json(line);
    ids(&json!({ "token_ids": made["tokens"] }))
}

const GREEDY: &str = "generate run --tokens 1,2,3 --temperature 0 --max-new-tokens 9 --json";

#[test]
fn missing_settings_default_to_the_models() {
    let sandbox = with_settings(&json!({ "do_sample": false, "max_new_tokens": 9 }));
    let greedy = tokens(&sandbox, GREEDY);
    assert_eq!(greedy.len(), 9);
    let line = "generate model --tokens 1,2,3 --json";
    assert_eq!(tokens(&sandbox, line), greedy);
    assert_eq!(
        tokens(&sandbox, &format!("{line} --max-new-tokens 4")),
        greedy[..4]
    );
    let sampled = tokens(&sandbox, &format!("{line} --temperature 5"));
    assert_ne!(sampled, greedy);

    let ran = sandbox.words(&format!("{line} --top-k 7 --verbose"));
    let settings = ran.stderr.lines().next().unwrap();
    for part in [
        "temperature 0 (generation_config.json), ",
        "top-k 7 (command line), ",
        "top-p 1 (default), ",
        "max-new-tokens 9 (generation_config.json)",
    ] {
        settings.assert_has(part);
    }
}

#[test]
fn several_ids_end_a_text_and_an_export_keeps_the_file() {
    let sandbox = with_settings(&json!({}));
    let greedy = tokens(&sandbox, GREEDY);
    let fourth = greedy[3];
    let first = greedy.iter().position(|&id| id == fourth).unwrap();
    let settings = json!({ "eos_token_id": [256, fourth], "temperature": 0 }).to_string();
    sandbox.write("model/generation_config.json", &settings);
    sandbox.succeeds("export model --out again");
    let kept = sandbox.text("again/generation_config.json");
    assert_eq!(kept, settings);
    for model in ["model", "again"] {
        let made: Value = sandbox.json(&format!("generate {model} --tokens 1,2,3 --json"));
        assert_eq!(made["finish"], "stop", "{made}");
        assert_eq!(
            ids(&json!({ "token_ids": made["tokens"] })),
            greedy[..first]
        );
    }
}

#[test]
fn exported_runs_declare_their_begin_and_end_ids() {
    let sandbox = with_model(64, &[1]);
    sandbox.succeeds("export run --out model");
    let read = |name: &str| -> Value {
        serde_json::from_slice(&fs::read(sandbox.path("model").join(name)).unwrap()).unwrap()
    };
    let (settings, config) = (read("generation_config.json"), read("config.json"));
    for name in ["bos_token_id", "eos_token_id"] {
        assert!(settings[name].is_u64(), "{settings}");
        assert_eq!(settings[name], config[name]);
    }
}

#[test]
fn bad_values_are_ignored_with_a_warning() {
    let sandbox = with_settings(
        &json!({ "temperature": -1, "top_k": "all", "top_p": 0.9, "max_new_tokens": 2 }),
    );
    let ran = sandbox.succeeds("generate model --tokens 1,2,3");
    insta::assert_snapshot!(ran.stderr, @r#"
    warning: model/generation_config.json: temperature = -1: must be at least 0 and finite; it is ignored
    warning: model/generation_config.json: top_k = "all": must be a whole number, 0 or more; it is ignored
    "#);
    sandbox.write("model/generation_config.json", "{\"temperature\": ");
    let ran = sandbox.succeeds("generate model --tokens 1,2,3 --max-new-tokens 2");
    let expected = "warning: model/generation_config.json is not a JSON object: ";
    assert!(ran.stderr.starts_with(expected), "{ran}");
    assert!(ran.stderr.ends_with("; the file is ignored\n"), "{ran}");
}

#[test]
fn settings_that_are_not_supported_are_ignored_with_a_warning() {
    let sandbox = with_settings(
        &json!({ "no_repeat_ngram_size": 3, "suppress_tokens": [1], "min_length": 0, "num_beams": 1, "max_new_tokens": 2 }),
    );
    let ran = sandbox.succeeds("generate model --tokens 1,2,3");
    insta::assert_snapshot!(ran.stderr, @r#"
    warning: model/generation_config.json: no_repeat_ngram_size = 3: this change of logits is not supported; it is ignored
    warning: model/generation_config.json: suppress_tokens = [1]: this change of logits is not supported; it is ignored
    "#);
}

#[test]
fn chat_shows_the_origin_of_settings() {
    let sandbox = with_settings(&json!({ "top_p": 0.95, "temperature": 0.6, "max_new_tokens": 1 }));
    let line = "model --chat-template chatml --min-p 0.1 --context 64";
    let ran = sandbox.chat(line, "/set temperature 0.3\n/show\n");
    for (name, value) in [
        ("temperature", "0.3 (/set)"),
        ("top-p", "0.95 (generation_config.json)"),
        ("min-p", "0.1 (command line)"),
        ("top-k", "0 (default)"),
        ("max-new-tokens", "1 (generation_config.json)"),
    ] {
        let shown = ran.stdout.lines().any(|line| {
            line.trim()
                .strip_prefix(name)
                .is_some_and(|rest| rest.trim() == value)
        });
        assert!(shown, "{name} {value}: {ran}");
    }
}

#[test]
fn requests_default_to_the_models_settings() {
    let sandbox = with_settings(&json!({ "do_sample": false, "max_new_tokens": 9 }));
    let greedy = tokens(&sandbox, GREEDY);
    let ask = |server: &super::support::server::Server, more: Value| {
        let mut body = json!({ "model": "model", "prompt": [1, 2, 3], "return_token_ids": true });
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let answer = server.post("/v1/completions", &body).expect(200);
        ids(&answer.json()["choices"][0])
    };
    let server = sandbox.serve("serve model");
    assert_eq!(ask(&server, json!({})), greedy);
    assert_eq!(ask(&server, json!({ "max_tokens": 3 })), greedy[..3]);
    assert_ne!(ask(&server, json!({ "temperature": 5, "seed": 1 })), greedy);
    // The playground uses the same defaults.
    let play = json!({ "model": "model", "prompt": "", "continued": [1, 2, 3] });
    let events = server.post("/api/play", &play).events();
    let played = events
        .iter()
        .filter_map(|event| event["token"]["id"].as_u64());
    let played: Vec<u64> = played.collect();
    assert_eq!(played.len(), 9);
    let mut body = play;
    (body["seed"], body["temperature"]) = (1.into(), 5.into());
    let events = server.post("/api/play", &body).events();
    let drawn = events
        .iter()
        .filter_map(|event| event["token"]["id"].as_u64());
    assert_ne!(drawn.collect::<Vec<_>>(), played);
    let shown = server.json("/api/models");
    assert_eq!(shown["models"][0]["sampling"]["temperature"], 0.0);
    // The server's limit takes precedence over the model's recommendation.
    let server = sandbox.serve("serve model --max-tokens 5");
    assert_eq!(ask(&server, json!({})), greedy[..5]);
}
