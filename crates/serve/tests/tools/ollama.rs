//! Ollama's API: chats, texts and embeddings.

use serde_json::{Value, json};

use super::entry::{HERMES, LLAMA, MISTRAL, Server, usual};
use super::reasoning::{ANSWER, THINKING};
use super::{check_call, tools};

pub fn post(server: &Server, path: &str, fields: Value) -> (u16, String) {
    server.post(path, usual(path), fields)
}

/// The answer as one object.
#[track_caller]
pub fn answered(server: &Server, path: &str, mut fields: Value) -> Value {
    if !path.starts_with("/api/embed") {
        fields["stream"] = false.into();
    }
    let (status, body) = post(server, path, fields);
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// The lines of an answer, which are sent by default.
#[track_caller]
pub fn streamed(server: &Server, path: &str, fields: Value) -> Vec<Value> {
    let (status, body) = post(server, path, fields);
    assert_eq!(status, 200, "{body}");
    let lines = body.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The text at a place of all lines.
fn joined(lines: &[Value], pointer: &str) -> String {
    lines
        .iter()
        .filter_map(|line| line.pointer(pointer)?.as_str())
        .collect()
}

#[test]
fn a_chat_is_that_of_chat_completions() {
    let server = Server::new(HERMES);
    let messages =
        json!([{ "role": "system", "content": "s" }, { "role": "user", "content": "?" }]);
    let chat = server.answered(json!({ "messages": messages, "max_tokens": 9, "seed": 5, "temperature": 0.7, "top_k": 30 }));
    let options = json!({ "num_predict": 9, "seed": 5, "temperature": 0.7, "top_k": 30, "num_ctx": 2048, "num_thread": 2 });
    let fields = json!({ "messages": messages, "options": options, "keep_alive": "5m" });
    let answer = answered(&server, "/api/chat", fields.clone());
    let choice = &chat["choices"][0];
    assert_eq!(answer["message"]["content"], choice["message"]["content"]);
    assert_eq!(answer["message"]["role"], "assistant");
    assert_eq!(
        (&answer["model"], &answer["done"]),
        (&json!("m"), &json!(true))
    );
    assert_eq!(answer["done_reason"], choice["finish_reason"]);
    assert_eq!(answer["prompt_eval_count"], chat["usage"]["prompt_tokens"]);
    assert_eq!(answer["eval_count"], chat["usage"]["completion_tokens"]);
    assert!(
        answer["total_duration"].as_u64().unwrap() >= answer["eval_duration"].as_u64().unwrap()
    );
    let lines = streamed(&server, "/api/chat", fields);
    assert_eq!(
        json!(joined(&lines, "/message/content")),
        answer["message"]["content"]
    );
    let (last, parts) = lines.split_last().unwrap();
    assert!(
        parts
            .iter()
            .all(|line| line["done"] == false && line.get("done_reason").is_none())
    );
    assert_eq!(last["eval_count"], answer["eval_count"]);
    let tagged = answered(
        &server,
        "/api/chat",
        json!({ "model": "m:latest", "options": { "num_predict": 1 } }),
    );
    assert_eq!(tagged["model"], "m");
}

#[test]
fn a_prompt_is_a_message_or_a_text() {
    let server = Server::new(HERMES);
    let options = json!({ "num_predict": 9, "seed": 5 });
    let message = answered(
        &server,
        "/api/generate",
        json!({ "system": "s", "options": options }),
    );
    let messages =
        json!([{ "role": "system", "content": "s" }, { "role": "user", "content": "?" }]);
    let chat = answered(
        &server,
        "/api/chat",
        json!({ "messages": messages, "options": options }),
    );
    assert_eq!(message["response"], chat["message"]["content"]);
    assert_eq!(message["prompt_eval_count"], chat["prompt_eval_count"]);
    let raw = answered(
        &server,
        "/api/generate",
        json!({ "raw": true, "options": options }),
    );
    let (_, completion) = server.post(
        "/v1/completions",
        json!({ "model": "m", "prompt": "?", "max_tokens": 9, "seed": 5 }),
        json!({}),
    );
    let completion: Value = serde_json::from_str(&completion).unwrap();
    assert_eq!(raw["response"], completion["choices"][0]["text"]);
    assert_eq!(
        raw["prompt_eval_count"],
        completion["usage"]["prompt_tokens"]
    );
    let lines = streamed(
        &server,
        "/api/generate",
        json!({ "raw": true, "options": options }),
    );
    assert_eq!(json!(joined(&lines, "/response")), raw["response"]);
    for (path, fields) in [
        ("/api/generate", json!({ "prompt": "" })),
        ("/api/chat", json!({ "messages": [] })),
    ] {
        let loaded = answered(&server, path, fields.clone());
        assert_eq!(
            (&loaded["done"], &loaded["done_reason"]),
            (&json!(true), &json!("load"))
        );
        assert_eq!(streamed(&server, path, fields).len(), 1);
    }
}

#[test]
fn functions_are_called() {
    // An answer is a call if it begins with a brace: the model draws bytes, and one of the seeds draws that.
    let server = Server::new(LLAMA);
    let fields = |seed: usize, tokens: usize| json!({ "tools": tools(), "options": { "num_predict": tokens, "seed": seed } });
    let is_call =
        |&seed: &usize| answered(&server, "/api/chat", fields(seed, 1))["message"]["content"] == "";
    let seed = (0..10_000).find(is_call).unwrap();
    let answer = answered(&server, "/api/chat", fields(seed, 600));
    assert_eq!(answer["done_reason"], "stop", "{answer}");
    let calls = answer["message"]["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 1, "{answer}");
    let function = &calls[0]["function"];
    check_call(&json!({ "id": calls[0]["id"], "type": "function",
        "function": { "name": function["name"], "arguments": function["arguments"].to_string() } }));
    let lines = streamed(&server, "/api/chat", fields(seed, 600));
    let streamed = lines
        .iter()
        .filter_map(|line| line["message"].get("tool_calls"));
    let streamed: Vec<&Value> = streamed.collect();
    assert_eq!(streamed.len(), 1, "a call is sent once it is complete");
    assert_eq!(streamed[0][0]["function"], *function);
    // One that is cut off is left out.
    let cut = answered(&server, "/api/chat", fields(seed, 5));
    assert_eq!(
        (&cut["done_reason"], cut["message"].get("tool_calls")),
        (&json!("length"), None)
    );
}

#[test]
fn results_need_no_identifiers() {
    for template in [HERMES, LLAMA, MISTRAL] {
        let server = Server::new(template);
        let weather = json!({ "name": "get_weather", "arguments": { "city": "Oslo", "days": 2 } });
        let calls = |ids: bool| {
            let call = |function: Value, id: &str| match ids {
                true => json!({ "id": id, "function": function }),
                false => json!({ "function": function }),
            };
            json!([
                call(json!({ "name": "now", "arguments": {} }), "call00001"),
                call(weather.clone(), "call00002")
            ])
        };
        let result = |text: &str, name: &str, id: &str, ids: bool| match ids {
            true => json!({ "role": "tool", "content": text, "tool_call_id": id }),
            false => json!({ "role": "tool", "content": text, "tool_name": name }),
        };
        let answer = |ids: bool| {
            let messages = json!([{ "role": "user", "content": "?" }, { "role": "assistant", "content": "", "tool_calls": calls(ids) },
                result("5", "get_weather", "call00002", ids), result("6", "now", "call00001", ids)]);
            let options = json!({ "num_predict": 8, "seed": 1 });
            answered(
                &server,
                "/api/chat",
                json!({ "messages": messages, "options": options }),
            )
        };
        let (with, without) = (answer(true), answer(false));
        assert_eq!(with["message"], without["message"]);
        assert_eq!(with["prompt_eval_count"], without["prompt_eval_count"]);
    }
}

#[test]
fn thinking_and_formats() {
    let server = Server::new(THINKING);
    let schema = json!({ "type": "object", "properties": { "n": { "enum": [1, 2] } }, "required": ["n"], "additionalProperties": false });
    let answer = answered(
        &server,
        "/api/chat",
        json!({ "format": schema, "options": { "num_predict": 60 } }),
    );
    let object: Value =
        serde_json::from_str(answer["message"]["content"].as_str().unwrap()).unwrap();
    assert!([1, 2].contains(&object["n"].as_i64().unwrap()), "{answer}");
    let count = |think: Value| {
        answered(
            &server,
            "/api/chat",
            json!({ "think": think, "options": { "num_predict": 1 } }),
        )["prompt_eval_count"]
            .as_u64()
            .unwrap()
    };
    let without = count(Value::Null) - 2;
    for (think, variables) in [
        (json!(true), "true?"),
        (json!(false), "false?"),
        (json!("low"), "truelow"),
    ] {
        assert_eq!(count(think) - without, variables.len() as u64);
    }
    let messages = |message: Value| json!({ "messages": [{ "role": "user", "content": "?" }, message, { "role": "user", "content": "?" }], "options": { "num_predict": 1 } });
    let tokens = |message: Value| {
        answered(&server, "/api/chat", messages(message))["prompt_eval_count"]
            .as_u64()
            .unwrap() as usize
    };
    let with = tokens(json!({ "role": "assistant", "content": "yes", "thinking": "ab" }));
    assert_eq!(
        with - tokens(json!({ "role": "assistant", "content": "yes" })),
        ANSWER.len() - "yes".len()
    );
    let begun = Server::new("{% for m in messages %}{{ m.content }}</think>{% endfor %}<think>");
    let options = json!({ "num_predict": 4, "seed": 2 });
    let thinking = answered(&begun, "/api/chat", json!({ "options": options }));
    assert!(thinking["message"]["thinking"].is_string(), "{thinking}");
    let hidden = answered(
        &begun,
        "/api/chat",
        json!({ "options": options, "think": false }),
    );
    assert_eq!(hidden["message"].get("thinking"), None, "{hidden}");
    let logprobs = answered(
        &begun,
        "/api/chat",
        json!({ "options": options, "logprobs": true, "top_logprobs": 2 }),
    );
    assert_eq!(
        logprobs["logprobs"].as_array().unwrap().len() as u64,
        logprobs["eval_count"].as_u64().unwrap()
    );
    assert_eq!(
        logprobs["logprobs"][0]["top_logprobs"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn texts_are_embedded() {
    let server = Server::new(HERMES);
    let body = json!({ "model": "m", "input": ["?", "ab"] });
    let (_, expected) = server.post("/v1/embeddings", body, json!({}));
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let vector = |index: usize| expected["data"][index]["embedding"].clone();
    let body = json!({ "model": "m:latest", "input": ["?", "ab"], "options": { "num_ctx": 5 }, "keep_alive": 5 });
    let embedded = answered(&server, "/api/embed", body);
    assert_eq!(embedded["embeddings"], json!([vector(0), vector(1)]));
    assert_eq!(
        embedded["prompt_eval_count"],
        expected["usage"]["prompt_tokens"]
    );
    let one = answered(&server, "/api/embeddings", json!({ "prompt": "ab" }));
    assert_eq!(one["embedding"], vector(1));
    let long = "a".repeat(5000);
    answered(&server, "/api/embed", json!({ "input": long }));
    let short = answered(
        &server,
        "/api/embed",
        json!({ "input": "?", "dimensions": 3 }),
    );
    assert_eq!(short["embeddings"][0].as_array().unwrap().len(), 3);
    for (fields, beginning) in [
        (
            json!({ "input": "?", "dimensions": 9999 }),
            "dimensions: must be between",
        ),
        (json!({ "input": long, "truncate": false }), "a text of"),
        (json!({ "input": 5 }), "input: "),
    ] {
        let (status, body) = post(&server, "/api/embed", fields);
        assert_eq!(status, 400, "{body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert!(
            body["error"].as_str().unwrap().starts_with(beginning),
            "{body}"
        );
    }
}
