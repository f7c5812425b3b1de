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
    server.check_answers("http_refusals");
    for body in ["", "\u{0}", &deep] {
        let (status, param, _) = error("/v1/completions", body);
        assert_eq!((status, &*param), (400, ""), "{body}");
    }
    let (status, _, message) = error("/v1/completions", &" ".repeat(20_001));
    assert_eq!(
        (status, &*message),
        (413, "the request's body must have at most 20000 bytes")
    );
    server
        .ask(
            "POST",
            "/v1/completions",
            "content-type: application/json\r\ncontent-length: 9223372036854775807\r\n",
            "",
        )
        .expect(413);
    let whole = r#"{"model": "run", "prompt": [1.0, 2.0], "max_tokens": 3.0, "temperature": 0, "return_token_ids": true}"#;
    let answer = server.post_text("/v1/completions", whole).json();
    assert_eq!(ids(&answer["choices"][0]), generated(&sandbox, &[1, 2], 3));
    let optioned = r#"{"model": "run", "prompt": [1, 2], "max_tokens": 3, "temperature": 0, "return_token_ids": true, "stream_options": {}}"#;
    let answer = server.post_text("/v1/completions", optioned).json();
    assert_eq!(ids(&answer["choices"][0]), generated(&sandbox, &[1, 2], 3));
    let many = json!({ "model": "run", "prompt": vec!["a"; 65] }).to_string();
    assert_eq!(error("/v1/completions", &many).0, 400);
    server
        .ask(
            "POST",
            "/v1/completions",
            "content-type: text/plain\r\n",
            "{}",
        )
        .expect(415);
    assert_eq!(server.get("/v1/completions").status, 405);
    let undecodable = server.get("/v1/models/%ff%fe").expect(400);
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
