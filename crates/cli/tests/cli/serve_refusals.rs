//! Requests that `emberlm serve` rejects, and unusual ones that it accepts.

use serde_json::json;

use super::serve::{generated, greedy, ids, with_model};

#[test]
fn invalid_requests_are_rejected_with_a_reason() {
    let sandbox = with_model(64, &[1]);
    let server = sandbox.serve("serve run --slots 2 --max-body 20000 --max-tokens 50");
    let error = |path: &str, body: &str| {
        let answer = server.post_text(path, body);
        let told = answer.json()["error"].clone();
        assert!(
            told["message"].as_str().is_some_and(|m| !m.is_empty()),
            "{body}: {}",
            answer.body
        );
        let param = told["param"].as_str().unwrap_or_default().to_owned();
        (
            answer.status,
            param,
            told["message"].as_str().unwrap().to_owned(),
        )
    };
    let deep = format!("{{\"model\": {}", "[".repeat(5000));
    for (body, status, param) in [
        ("", 400, ""),
        ("{", 400, ""),
        ("[]", 400, ""),
        ("\u{0}", 400, ""),
        (&*deep, 400, ""),
        ("{}", 400, ""),
        (r#"{"model": 1}"#, 400, "model"),
        (r#"{"model": "../run", "prompt": "a"}"#, 404, "model"),
        (r#"{"model": "run", "promt": "a"}"#, 400, "promt"),
        (r#"{"model": "run", "prompt": []}"#, 400, "prompt"),
        (r#"{"model": "run", "prompt": [[]]}"#, 400, "prompt"),
        (r#"{"model": "run", "prompt": [257]}"#, 400, "prompt"),
        (r#"{"model": "run", "prompt": [-1]}"#, 400, "prompt"),
        (r#"{"model": "run", "prompt": [1e99]}"#, 400, "prompt"),
        (r#"{"model": "run", "prompt": {"a": 1}}"#, 400, "prompt"),
        (r#"{"model": "run", "prompt": "a", "n": 0}"#, 400, "n"),
        (r#"{"model": "run", "prompt": "a", "n": 259}"#, 400, "n"),
        (
            r#"{"model": "run", "prompt": "a", "n": 18446744073709551615}"#,
            400,
            "n",
        ),
        (
            r#"{"model": "run", "prompt": "a", "max_tokens": 51}"#,
            400,
            "max_tokens",
        ),
        (
            r#"{"model": "run", "prompt": "a", "max_tokens": -1}"#,
            400,
            "max_tokens",
        ),
        (
            r#"{"model": "run", "prompt": "a", "temperature": -1}"#,
            400,
            "temperature",
        ),
        (
            r#"{"model": "run", "prompt": "a", "temperature": "hot"}"#,
            400,
            "temperature",
        ),
        (
            r#"{"model": "run", "prompt": "a", "top_p": 0}"#,
            400,
            "top_p",
        ),
        (
            r#"{"model": "run", "prompt": "a", "logprobs": 6}"#,
            400,
            "logprobs",
        ),
        (
            r#"{"model": "run", "prompt": "a", "logprobs": 1, "echo": true}"#,
            400,
            "echo",
        ),
        (
            r#"{"model": "run", "prompt": "a", "logit_bias": {"a": 1}}"#,
            400,
            "logit_bias",
        ),
        (
            r#"{"model": "run", "prompt": "a", "logit_bias": {"300": 1}}"#,
            400,
            "logit_bias",
        ),
        (
            r#"{"model": "run", "prompt": "a", "stop": ""}"#,
            400,
            "stop",
        ),
        (
            r#"{"model": "run", "prompt": "a", "stop": [1]}"#,
            400,
            "stop",
        ),
        (
            r#"{"model": "run", "prompt": "a", "structured_outputs": {"choice": []}}"#,
            400,
            "structured_outputs.choice",
        ),
        (
            r##"{"model": "run", "prompt": "a", "structured_outputs": {"json": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}}}"##,
            400,
            "structured_outputs",
        ),
        (
            r#"{"model": "run", "prompt": "a", "structured_outputs": {"regex": "("}}"#,
            400,
            "structured_outputs",
        ),
        (
            r#"{"model": "run", "prompt": "a", "structured_outputs": {"lark": "start: \"a\""}}"#,
            400,
            "structured_outputs",
        ),
    ] {
        let (found, field, message) = error("/v1/completions", body);
        assert_eq!((found, &*field), (status, param), "{body}: {message}");
    }
    let long = json!({ "model": "run", "prompt": vec![1; 60], "max_tokens": 10 }).to_string();
    let (status, _, message) = error("/v1/completions", &long);
    assert_eq!(status, 400);
    assert!(
        message.starts_with(
            "a prompt of 60 tokens and 10 new ones are more than this model's context of 64"
        ),
        "{message}"
    );
    let (status, _, message) = error("/v1/completions", &" ".repeat(20_001));
    assert_eq!(
        (status, &*message),
        (413, "the request's body must have at most 20000 bytes")
    );
    let announced = server.ask(
        "POST",
        "/v1/completions",
        "content-type: application/json\r\ncontent-length: 9223372036854775807\r\n",
        "",
    );
    assert_eq!(announced.status, 413, "{}", announced.body);
    let whole = r#"{"model": "run", "prompt": [1.0, 2.0], "max_tokens": 3.0, "temperature": 0, "return_token_ids": true}"#;
    let answer = server.post_text("/v1/completions", whole).json();
    assert_eq!(ids(&answer["choices"][0]), generated(&sandbox, &[1, 2], 3));
    let optioned = r#"{"model": "run", "prompt": [1, 2], "max_tokens": 3, "temperature": 0, "return_token_ids": true, "stream_options": {}}"#;
    let answer = server.post_text("/v1/completions", optioned).json();
    assert_eq!(ids(&answer["choices"][0]), generated(&sandbox, &[1, 2], 3));
    let many = json!({ "model": "run", "prompt": vec!["a"; 65] }).to_string();
    assert_eq!(error("/v1/completions", &many).0, 400);
    for (path, body, param) in [
        (
            "/v1/chat/completions",
            r#"{"model": "run", "messages": [{"role": "user", "content": "a"}]}"#,
            "model",
        ),
        (
            "/v1/chat/completions",
            r#"{"model": "run", "messages": [{"role": "user", "content": [{"type": 0, "text": "a"}]}]}"#,
            "messages[0].content",
        ),
        (
            "/v1/chat/completions",
            r#"{"model": "run", "messages": [{"role": "user", "content": "a"}], "response_format": {"type": 0}}"#,
            "response_format",
        ),
        (
            "/v1/chat/completions",
            r#"{"model": "run", "messages": [["user", "a", null]]}"#,
            "messages[0]",
        ),
        (
            "/v1/completions",
            r#"{"model": "run", "prompt": "a", "stream_options": []}"#,
            "stream_options",
        ),
        (
            "/v1/chat/completions",
            r#"{"model": "run", "messages": [{"role": "user"}]}"#,
            "messages[0]",
        ),
        (
            "/v1/embeddings",
            r#"{"model": "run", "input": "a", "dimensions": 3}"#,
            "dimensions",
        ),
        (
            "/v1/embeddings",
            r#"{"model": "run", "input": [[300]]}"#,
            "input",
        ),
        (
            "/v1/embeddings",
            r#"{"model": "run", "input": "a", "encoding_format": "hex"}"#,
            "encoding_format",
        ),
        ("/api/play", r#"{"model": "run"}"#, "prompt"),
        (
            "/api/play",
            r#"{"model": "run", "prompt": "a", "continued": [300]}"#,
            "prompt",
        ),
        (
            "/api/play",
            r#"{"model": "run", "prompt": "a", "top_logprobs": 21}"#,
            "top_logprobs",
        ),
    ] {
        let (status, found, message) = error(path, body);
        assert_eq!((status, &*found), (400, param), "{body}: {message}");
    }
    let kind = server.ask(
        "POST",
        "/v1/completions",
        "content-type: text/plain\r\n",
        "{}",
    );
    assert_eq!(kind.status, 415);
    assert_eq!(server.get("/v1/completions").status, 405);
    let undecodable = server.get("/v1/models/%ff%fe");
    assert_eq!(undecodable.status, 400);
    assert_eq!(undecodable.json()["error"]["param"], "model");
    for path in [
        "/v1/engines",
        "/../run/config.toml",
        "/v1/models/..%2f..%2fetc%2fpasswd",
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.json()["error"]["message"].is_string(), "{path}");
    }
    // The server still answers correctly.
    let answer = server.post("/v1/completions", &greedy(&[1, 2, 3], 5));
    assert_eq!(
        ids(&answer.json()["choices"][0]),
        generated(&sandbox, &[1, 2, 3], 5)
    );
}

#[test]
fn invalid_server_options_are_rejected() {
    let sandbox = with_model(64, &[1]);
    sandbox.write("empty", " \n");
    insta::assert_snapshot!(sandbox.words("serve nothing --port 0"), @r"
    exit 1
    --- stderr
    error: no such model: nothing
    hint: give a run's directory (the --out of `emberlm train`), one of its checkpoints/step-…, or a Hugging Face model's
    ");
    insta::assert_snapshot!(sandbox.words("serve run --port 0 --api-key-file empty"), @r"
    exit 1
    --- stderr
    error: empty must contain one key without spaces
    hint: create one: openssl rand -hex 32 > key
    ");
    insta::assert_snapshot!(sandbox.words("serve run --port 0 --context 65"), @r"
    exit 1
    --- stderr
    error: context = 65: must be at most 64, the model's
    ");
    insta::assert_snapshot!(sandbox.words("serve --follow data --port 0"), @r"
    exit 1
    --- stderr
    error: data is not a run
    hint: --follow takes the folder of a run of `emberlm train`
    ");
    insta::assert_snapshot!(sandbox.words("serve run --port 0 --chat-template nosuch"), @r"
    exit 1
    --- stderr
    error: unknown chat template `nosuch`: choose chatml or llama3, or give the path of a .jinja file, of a tokenizer_config.json, or of a folder that holds one
    ");
}
