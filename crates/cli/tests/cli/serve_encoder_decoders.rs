//! `emberlm serve` with an encoder–decoder: targets, chat and refusals.

use std::path::Path;

use serde_json::{Value, json};

use super::encoder_decoder as encoder_decoders;
use super::serve_encoders::{serve, text};
use super::support::server::together;
use super::support::{AssertText, Sandbox};

/// The output of `emberlm generate --json`.
fn generated(sandbox: &Sandbox, model: &Path, options: &[&str]) -> Value {
    let model = model.to_str().unwrap();
    let command = [&["generate", model, "--json"], options].concat();
    sandbox.run(command).json()
}

#[test]
fn targets_equal_those_of_generate() {
    let (sandbox, model) = (Sandbox::new(), encoder_decoders::with_tokenizer());
    let server = serve(&sandbox, model.path(), "--slots 3");
    let ask = |body: &Value| {
        let mut body = body.clone();
        body["model"] = "run".into();
        body["return_token_ids"] = true.into();
        let answer = server.post("/v1/completions", &body).expect(200);
        answer.json()
    };
    // Without settings, the most probable token is chosen.
    let expected = generated(
        &sandbox,
        model.path(),
        &["--prompt", "w5 w6 w7", "--max-new-tokens", "16"],
    );
    let answer = ask(&json!({ "prompt": "w5 w6 w7" }));
    let choice = &answer["choices"][0];
    assert_eq!(choice["token_ids"], expected["tokens"]);
    assert_eq!(choice["text"], expected["text"]);
    assert_eq!(choice["finish_reason"], expected["finish"]);
    // The tokenizer's template adds the end of the source.
    assert_eq!(answer["usage"]["prompt_tokens"], 4);

    let sampled = [
        "--tokens",
        "5,6,7,1",
        "--max-new-tokens",
        "30",
        "--temperature",
        "1",
        "--seed",
        "9",
    ];
    let with_logprobs = [&sampled[..], &["--logprobs", "2"]].concat();
    let expected = generated(&sandbox, model.path(), &with_logprobs);
    let body = json!({
        "prompt": [5, 6, 7, 1], "max_tokens": 30, "temperature": 1, "seed": 9, "logprobs": 2, "n": 2
    });
    let answer = ask(&body);
    let choice = &answer["choices"][0];
    assert_eq!(choice["token_ids"], expected["tokens"]);
    let logprobs = choice["logprobs"]["token_logprobs"].as_array().unwrap();
    assert_eq!(logprobs.len(), expected["tokens"].as_array().unwrap().len());
    for (found, expected) in logprobs
        .iter()
        .zip(expected["logprobs"].as_array().unwrap())
    {
        let error = found.as_f64().unwrap() - expected["logprob"].as_f64().unwrap();
        assert!(error.abs() < 1e-5, "{found}, not {expected}");
    }
    assert_ne!(answer["choices"][1]["token_ids"], choice["token_ids"]);

    let mut streamed = body;
    streamed["stream"] = true.into();
    streamed["model"] = "run".into();
    let events = server.post("/v1/completions", &streamed).events();
    let of_first = events
        .iter()
        .filter(|event| event["choices"][0]["index"] == 0);
    let text: String = of_first
        .map(|event| event["choices"][0]["text"].as_str().unwrap())
        .collect();
    assert_eq!(text, choice["text"].as_str().unwrap());

    let words: Vec<&str> = text.split(' ').collect();
    let stop = format!(" {}", words[2]);
    let options = [&sampled[..], &["--stop", &stop]].concat();
    let expected = generated(&sandbox, model.path(), &options);
    let answer = ask(&json!({
        "prompt": "w5 w6 w7", "max_tokens": 30, "temperature": 1, "seed": 9, "stop": stop
    }));
    assert_eq!(answer["choices"][0]["text"], expected["text"]);
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
}

#[test]
fn concurrent_targets_equal_single_ones() {
    let (sandbox, model) = (Sandbox::new(), encoder_decoders::with_tokenizer());
    let server = serve(&sandbox, model.path(), "--slots 2");
    let sources: Vec<String> = (0..8).map(text).collect();
    let answers = together(&sources, |source| {
        let body =
            json!({ "model": "run", "prompt": source, "max_tokens": 20, "return_token_ids": true });
        server.post("/v1/completions", &body).json()
    });
    for (source, answer) in sources.iter().zip(answers) {
        let options = ["--prompt", source, "--max-new-tokens", "20"];
        let expected = generated(&sandbox, model.path(), &options);
        assert_eq!(
            answer["choices"][0]["token_ids"], expected["tokens"],
            "{answer}"
        );
    }
    let metrics = server.get("/metrics").body;
    metrics.assert_has("emberlm_free_slots{model=\"run\"} 2");
}

#[test]
fn encoder_decoders_refuse_what_they_cannot_do() {
    let (sandbox, model) = (Sandbox::new(), encoder_decoders::with_tokenizer());
    let server = serve(&sandbox, model.path(), "--context 24");
    assert_eq!(server.json("/v1/models")["data"][0]["max_model_len"], 24);
    server.check_answers("http_encoder_decoders");
}

#[test]
fn encoder_decoders_chat_with_a_template() {
    let (sandbox, model) = (Sandbox::new(), encoder_decoders::with_tokenizer());
    sandbox.write("chat.jinja", "{{ messages[0].content }}</s>");
    let server = serve(&sandbox, model.path(), "--chat-template chat.jinja");
    let body = json!({
        "model": "run", "max_tokens": 16, "messages": [{ "role": "user", "content": "w5 w6 w7" }]
    });
    let answer = server.post("/v1/chat/completions", &body).expect(200);
    let options = ["--prompt", "w5 w6 w7", "--max-new-tokens", "16"];
    let expected = generated(&sandbox, model.path(), &options);
    let message = &answer.json()["choices"][0]["message"];
    assert_eq!(message["content"], expected["text"], "{message}");
    assert_eq!(answer.json()["usage"]["prompt_tokens"], 4);
}
