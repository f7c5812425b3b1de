//! `POST /v1/responses` of `emberlm serve`.

use serde_json::{Value, json};

use super::serve::with_model;
use super::support::server::{Answer, Server};

const PATH: &str = "/v1/responses";

/// A request with additional fields. A logit bias prevents the end-of-text token.
fn ask(server: &Server, fields: Value) -> Answer {
    let mut body = json!({ "model": "run", "temperature": 0, "logit_bias": { "256": -100 } });
    let fields = fields.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(fields);
    server.post(PATH, &body)
}

fn text(response: &Value) -> &str {
    response["output"][0]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{response}"))
}

#[test]
fn responses_equal_chat_completions() {
    let sandbox = with_model(256, &[1]);
    let server = sandbox.serve("serve run --chat-template chatml --alias other");
    let messages = json!([
        { "role": "system", "content": "Add." },
        { "role": "user", "content": "3 and 4 make" },
    ]);
    let chat = json!({ "model": "run", "messages": messages, "temperature": 0, "max_tokens": 12, "logit_bias": { "256": -100 } });
    let chat = server.post("/v1/chat/completions", &chat).json();
    let expected = chat["choices"][0]["message"]["content"].as_str().unwrap();
    let parts = json!([{ "type": "input_text", "text": "3 and " }, { "type": "input_text", "text": "4 make" }]);
    for fields in [
        json!({ "instructions": "Add.", "input": "3 and 4 make" }),
        json!({ "input": messages }),
        json!({ "input": [
            { "type": "message", "role": "developer", "content": "Add." },
            { "role": "user", "content": parts },
        ] }),
        json!({ "model": "other", "instructions": "Add.", "input": "3 and 4 make", "store": false, "tools": [],
            "previous_response_id": null, "metadata": { "a": "b" }, "truncation": "disabled" }),
    ] {
        let mut fields = fields;
        fields["max_output_tokens"] = 12.into();
        let answer = ask(&server, fields.clone());
        assert_eq!(answer.status, 200, "{fields}: {}", answer.body);
        let response = answer.json();
        assert_eq!(text(&response), expected, "{fields}");
        assert_eq!(response["object"], "response");
        assert_eq!(response["model"], "run");
        assert_eq!(response["status"], "incomplete");
        assert_eq!(
            response["incomplete_details"]["reason"],
            "max_output_tokens"
        );
        assert_eq!(response["output"][0]["role"], "assistant");
        let usage = &response["usage"];
        assert_eq!(usage["input_tokens"], chat["usage"]["prompt_tokens"]);
        assert_eq!(usage["output_tokens"], 12);
        assert_eq!(response["instructions"], fields["instructions"]);
        assert!(fields.get("metadata").is_none() || response["metadata"]["a"] == "b");
    }
}

#[test]
fn a_response_can_be_input_of_the_next_request() {
    let sandbox = with_model(256, &[1]);
    let server = sandbox.serve("serve run --chat-template chatml");
    let first = ask(&server, json!({ "input": "a", "max_output_tokens": 5 })).json();
    let mut input = vec![json!({ "role": "user", "content": "a" })];
    input.extend(first["output"].as_array().unwrap().iter().cloned());
    input.push(json!({ "role": "user", "content": "b" }));
    let second = ask(&server, json!({ "input": input, "max_output_tokens": 5 })).expect(200);
    let written = json!([
        { "role": "user", "content": "a" },
        { "role": "assistant", "content": text(&first) },
        { "role": "user", "content": "b" },
    ]);
    let same = ask(&server, json!({ "input": written, "max_output_tokens": 5 }));
    assert_eq!(text(&second.json()), text(&same.json()));
}

#[test]
fn a_stream_has_the_documented_events() {
    let sandbox = with_model(256, &[1]);
    let server = sandbox.serve("serve run --chat-template chatml");
    let fields = json!({ "input": "3 and 4 make", "max_output_tokens": 12 });
    let whole = ask(&server, fields.clone()).json();
    let mut streamed = fields;
    streamed["stream"] = true.into();
    let answer = ask(&server, streamed);
    let events = answer.events();
    let mut kinds: Vec<&str> = events.iter().map(|e| e["type"].as_str().unwrap()).collect();
    let named = answer
        .body
        .lines()
        .filter_map(|line| line.strip_prefix("event: "));
    assert_eq!(named.collect::<Vec<_>>(), kinds);
    kinds.dedup();
    assert_eq!(
        kinds,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.incomplete",
        ]
    );
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], at, "{event}");
    }
    let deltas = events.iter().filter_map(|event| event["delta"].as_str());
    assert_eq!(deltas.collect::<String>(), text(&whole));
    let last = &events.last().unwrap()["response"];
    assert_eq!(text(last), text(&whole));
    assert_eq!(
        last["usage"]["output_tokens"],
        whole["usage"]["output_tokens"]
    );
    assert_eq!(last["id"], events[0]["response"]["id"]);
    assert_eq!(events[0]["response"]["status"], "in_progress");
}

#[test]
fn constrained_text_follows_its_format() {
    let sandbox = with_model(256, &[1]);
    let server = sandbox.serve("serve run --chat-template chatml");
    let schema = json!({ "type": "object", "properties": { "a": { "enum": ["x", "y"] } }, "required": ["a"], "additionalProperties": false });
    let format =
        json!({ "type": "json_schema", "name": "found", "schema": schema, "strict": true });
    for stream in [false, true] {
        let fields = json!({ "input": "a", "text": { "format": format }, "stream": stream });
        let answer = ask(&server, fields).expect(200);
        let response = match stream {
            true => answer.events().last().unwrap()["response"].clone(),
            false => answer.json(),
        };
        assert_eq!(response["status"], "completed", "{response}");
        assert_eq!(response["text"]["format"]["schema"], schema);
        let found: Value = serde_json::from_str(text(&response)).unwrap();
        assert!(
            ["x", "y"].contains(&found["a"].as_str().unwrap()),
            "{found}"
        );
    }
}

#[test]
fn unsupported_fields_are_rejected() {
    let sandbox = with_model(64, &[1]);
    let server = sandbox.serve("serve run --chat-template chatml --max-tokens 50");
    server.check_answers("http_responses");
    assert_eq!(server.get(PATH).status, 405);
    assert_eq!(server.get("/v1/responses/resp_1").status, 404);
    let plain = sandbox.serve("serve run");
    let answer = ask(&plain, json!({ "input": "a" }));
    assert_eq!(
        (answer.status, &answer.json()["error"]["param"]),
        (400, &json!("model"))
    );
}

#[test]
fn limits_of_time_memory_and_size_hold() {
    let sandbox = with_model(1 << 14, &[1]);
    let server = sandbox.serve(
        "serve run --slots 1 --timeout 1 --max-tokens 16000 --context 16384 --chat-template chatml --max-body 4000",
    );
    let long = |stream: bool| json!({ "input": "a", "max_output_tokens": 16000, "stream": stream });
    assert_eq!(ask(&server, long(false)).status, 504);
    let events = ask(&server, long(true)).events();
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.failed");
    assert_eq!(last["sequence_number"], events.len() - 1);
    assert_eq!(last["response"]["status"], "failed");
    assert_eq!(last["response"]["error"]["code"], "timeout");
    server.wait_for("emberlm_free_slots", "1");
    assert_eq!(
        ask(&server, json!({ "input": "a".repeat(4000) })).status,
        413
    );
    server
        .ask("POST", PATH, "content-type: text/plain\r\n", "{}")
        .expect(415);
    let server = sandbox.serve(
        "serve run --max-tokens 16000 --context 16384 --chat-template chatml --max-request-memory 900KiB",
    );
    // A stream accumulates its text for the final events.
    for stream in [false, true] {
        let answer = ask(&server, long(stream));
        assert_eq!(
            answer.json()["error"]["code"],
            "request_too_large",
            "{}",
            answer.body
        );
    }
}
