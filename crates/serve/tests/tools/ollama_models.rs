//! Ollama's API: the list of models, their descriptions, and errors.

use serde_json::{Value, json};

use super::entry::{HERMES, PLAIN, Server};
use super::ollama::{answered, post, streamed};

#[test]
fn models_are_listed_and_described() {
    let server = Server::new(HERMES);
    let get = |path: &str| {
        let (status, body) = server.get(path);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str::<Value>(&body).unwrap()
    };
    let tags = get("/api/tags");
    let model = &tags["models"][0];
    assert_eq!(
        (&model["name"], &model["model"]),
        (&json!("m"), &json!("m"))
    );
    assert_eq!(model["digest"].as_str().unwrap().len(), 64);
    assert!(
        model["modified_at"].as_str().unwrap().ends_with('Z'),
        "{tags}"
    );
    let running = get("/api/ps");
    assert_eq!(running["models"][0]["context_length"], 4096);
    assert!(get("/api/version")["version"].as_str().unwrap() >= "0.1");
    for fields in [json!({}), json!({ "model": "m:latest" })] {
        let (status, body) = post(&server, "/api/show", fields);
        assert_eq!(status, 200, "{body}");
        let shown: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            shown["capabilities"],
            json!(["completion", "tools", "embedding"])
        );
        assert_eq!(shown["template"], HERMES);
        let family = shown["details"]["family"].as_str().unwrap();
        assert_eq!(
            shown["model_info"][format!("{family}.context_length")],
            4096
        );
    }
    assert_eq!(
        answered(&server, "/api/pull", json!({}))["status"],
        "success"
    );
    assert_eq!(
        streamed(&server, "/api/pull", json!({})).last().unwrap()["status"],
        "success"
    );
}

#[test]
fn errors_are_texts() {
    let server = Server::new(PLAIN);
    let image = json!([{ "role": "user", "content": "?", "images": ["AA=="] }]);
    for (path, fields, status, beginning) in [
        (
            "/api/chat",
            json!({ "model": "x" }),
            404,
            "the model \"x\" does not exist",
        ),
        (
            "/api/show",
            json!({ "model": "x" }),
            404,
            "the model \"x\" does not exist",
        ),
        (
            "/api/pull",
            json!({ "model": "x" }),
            404,
            "the model \"x\" does not exist",
        ),
        (
            "/api/show",
            json!({ "model": null }),
            400,
            "missing field `model`",
        ),
        (
            "/api/chat",
            json!({ "message": [] }),
            400,
            "message: this field is not supported; did you mean messages?",
        ),
        (
            "/api/chat",
            json!({ "messages": image }),
            400,
            "messages[0].images: must be []",
        ),
        (
            "/api/chat",
            json!({ "options": { "temprature": 1 } }),
            400,
            "options",
        ),
        (
            "/api/chat",
            json!({ "options": { "mirostat": 1 } }),
            400,
            "options.mirostat: must be 0",
        ),
        (
            "/api/chat",
            json!({ "options": { "temperature": -1 } }),
            400,
            "options.temperature",
        ),
        (
            "/api/chat",
            json!({ "options": { "num_predict": 1_000_000_000 } }),
            400,
            "options.num_predict: must be at most",
        ),
        ("/api/chat", json!({ "format": "xml" }), 400, "format"),
        (
            "/api/chat",
            json!({ "format": { "type": 5 } }),
            400,
            "format",
        ),
        (
            "/api/chat",
            json!({ "top_logprobs": 2 }),
            400,
            "top_logprobs: needs",
        ),
        (
            "/api/chat",
            json!({ "messages": [], "options": { "repeat_penalty": 0 } }),
            400,
            "options.repeat_penalty",
        ),
        (
            "/api/generate",
            json!({ "context": [1] }),
            400,
            "context: must be []",
        ),
        (
            "/api/generate",
            json!({ "system": "s", "raw": true }),
            400,
            "system: needs a chat template",
        ),
    ] {
        let (found, body) = post(&server, path, fields);
        assert_eq!(found, status, "{body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        let message = body["error"].as_str().unwrap();
        assert!(message.starts_with(beginning), "{beginning}: {message}");
    }
}
