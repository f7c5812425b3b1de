//! `emberlm serve` with draft tokens.

use serde_json::json;

use super::draft::with_two_models;
use super::serve::{generated, greedy, ids, with_model};
use super::support::server::together;

#[test]
fn answers_equal_those_without_drafts() {
    let sandbox = with_model(128, &[1]);
    let prompts: [&[u32]; 3] = [&[1, 2], &[7, 8, 9, 7, 8, 9, 7], &[5; 20]];
    let expected = prompts.map(|prompt| generated(&sandbox, prompt, 100));
    for options in [
        "",
        "--draft run",
        "--draft run --draft-tokens 3 --memory 1GiB",
        "--draft-tokens 0",
    ] {
        let server = sandbox.serve(&format!("serve run --slots 2 {options}"));
        let answers = together(&prompts, |prompt| {
            let answer = server.post("/v1/completions", &greedy(prompt, 100));
            ids(&answer.json()["choices"][0])
        });
        assert_eq!(answers, expected, "{options}");
        // Draws are the same, too.
        let drawn = |options: &str| {
            let server = sandbox.serve(&format!("serve run --slots 2 {options}"));
            let body = json!({ "model": "run", "prompt": [1, 2], "max_tokens": 100, "seed": 3, "return_token_ids": true });
            ids(&server.post("/v1/completions", &body).json()["choices"][0])
        };
        assert_eq!(drawn(options), drawn("--draft-tokens 0"), "{options}");
    }
}

#[test]
fn a_model_s_drafts_are_set_in_the_file() {
    let sandbox = with_two_models();
    sandbox.write(
        "serve.toml",
        "[[model]]\npath = 'run'\ndraft = 'small'\ndraft_tokens = 2\n\n[[model]]\npath = 'small'\ndraft_tokens = 0\n",
    );
    let server = sandbox.serve("serve --config serve.toml --slots 1");
    let body = json!({ "model": "run", "prompt": "hello", "max_tokens": 3, "temperature": 0 });
    let answer = server.post("/v1/completions", &body).json();
    let line = "generate run --prompt hello --temperature 0 --max-new-tokens 3 --json";
    let expected: serde_json::Value = sandbox.json(line);
    assert_eq!(answer["choices"][0]["text"], expected["text"]);
    let metrics = server.get("/metrics").body;
    assert!(
        metrics.contains("emberlm_drafted_tokens_total{model=\"small\"} 0"),
        "{metrics}"
    );
}
