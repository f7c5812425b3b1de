//! Anthropic's Messages API.

use serde_json::{Value, json};

use super::entry::{HERMES, LLAMA, MISTRAL, PLAIN, Server, usual};
use super::reasoning::{ANSWER, THINKING};
use super::{check_call, tools};

/// The functions of [`tools`] in the format of this API.
fn custom() -> Vec<Value> {
    let custom = |tool: &Value| {
        let function = &tool["function"];
        let empty = json!({ "type": "object", "properties": {}, "additionalProperties": false });
        let schema = function.get("parameters").unwrap_or(&empty);
        json!({ "name": function["name"], "input_schema": schema })
    };
    tools().as_array().unwrap().iter().map(custom).collect()
}

fn post(server: &Server, path: &str, fields: Value) -> (u16, String) {
    server.post(path, usual(path), fields)
}

#[track_caller]
fn answered(server: &Server, fields: Value) -> Value {
    let mut body = json!({ "max_tokens": 8 });
    body.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    let (status, body) = post(server, "/v1/messages", body);
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[track_caller]
fn count(server: &Server, fields: Value) -> u64 {
    let (status, body) = post(server, "/v1/messages/count_tokens", fields);
    assert_eq!(status, 200, "{body}");
    let count: Value = serde_json::from_str(&body).unwrap();
    count["input_tokens"].as_u64().unwrap()
}

/// The events of a stream, by their names and contents.
#[track_caller]
fn streamed(server: &Server, mut fields: Value) -> Vec<Value> {
    fields["stream"] = true.into();
    let (status, body) = post(server, "/v1/messages", fields);
    assert_eq!(status, 200, "{body}");
    let events = body.split("\n\n").filter(|event| !event.is_empty());
    events
        .map(|event| {
            let field = |name| {
                event
                    .lines()
                    .find_map(|line| line.strip_prefix(name))
                    .unwrap()
            };
            let data: Value = serde_json::from_str(field("data: ")).unwrap();
            assert_eq!(data["type"], field("event: "));
            data
        })
        .collect()
}

/// The content blocks that the events of a stream add up to, and the last delta of the message.
fn assembled(events: &[Value]) -> (Vec<Value>, Value) {
    let mut blocks: Vec<Value> = Vec::new();
    let mut arguments = String::new();
    let mut end = Value::Null;
    let mut open = false;
    for event in events {
        let index = || event["index"].as_u64().unwrap() as usize;
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert!(!open && index() == blocks.len());
                open = true;
                blocks.push(event["content_block"].clone());
                arguments.clear();
            }
            "content_block_delta" => {
                assert!(open && index() == blocks.len() - 1);
                let delta = &event["delta"];
                let block = blocks.last_mut().unwrap();
                let (field, from) = match delta["type"].as_str().unwrap() {
                    "text_delta" => ("text", "text"),
                    "thinking_delta" => ("thinking", "thinking"),
                    _ => {
                        arguments += delta["partial_json"].as_str().unwrap();
                        continue;
                    }
                };
                let more = delta[from].as_str().unwrap();
                let text = format!("{}{more}", block[field].as_str().unwrap());
                block[field] = text.into();
            }
            "content_block_stop" => {
                assert!(open);
                open = false;
                let block = blocks.last_mut().unwrap();
                if block["type"] == "tool_use" && !arguments.is_empty() {
                    block["input"] = serde_json::from_str(&arguments).unwrap();
                }
            }
            "message_delta" => end = event.clone(),
            _ => {}
        }
    }
    assert_eq!(events[0]["type"], "message_start");
    assert_eq!(events.last().unwrap()["type"], "message_stop");
    (blocks, end)
}

#[test]
fn an_answer_is_that_of_chat_completions() {
    let server = Server::new(HERMES);
    let sampling = json!({ "max_tokens": 12, "seed": 5 });
    let mut fields = sampling.clone();
    fields["messages"] = json!([{ "role": "system", "content": "s" }, { "role": "user", "content": "?" },
        { "role": "assistant", "content": "!" }, { "role": "user", "content": "ab" }]);
    let chat = server.answered(fields);
    let mut fields = sampling;
    fields["system"] =
        json!([{ "type": "text", "text": "s", "cache_control": { "type": "ephemeral" } }]);
    fields["messages"] = json!([{ "role": "user", "content": "?" }, { "role": "assistant", "content": [{ "type": "text", "text": "!" }] },
        { "role": "user", "content": [{ "type": "text", "text": "ab" }] }]);
    let answer = answered(&server, fields.clone());
    let choice = &chat["choices"][0];
    assert_eq!(
        answer["content"],
        json!([{ "type": "text", "text": choice["message"]["content"] }])
    );
    assert_eq!(
        (&answer["type"], &answer["role"]),
        (&json!("message"), &json!("assistant"))
    );
    assert!(answer["id"].as_str().unwrap().starts_with("msg_"));
    let reason = match choice["finish_reason"].as_str().unwrap() {
        "length" => "max_tokens",
        _ => "end_turn",
    };
    assert_eq!(answer["stop_reason"], reason);
    let usage = &answer["usage"];
    let sum = |names: [&str; 2]| {
        names
            .map(|name| usage[name].as_u64().unwrap())
            .iter()
            .sum::<u64>()
    };
    let tokens = sum(["input_tokens", "cache_read_input_tokens"]);
    assert_eq!(json!(tokens), chat["usage"]["prompt_tokens"]);
    assert_eq!(usage["output_tokens"], chat["usage"]["completion_tokens"]);
    let (blocks, end) = assembled(&streamed(&server, fields.clone()));
    assert_eq!(json!(blocks), answer["content"]);
    assert_eq!(end["delta"]["stop_reason"], reason);
    fields
        .as_object_mut()
        .unwrap()
        .retain(|name, _| name == "messages" || name == "system");
    assert_eq!(count(&server, fields), tokens);
}

#[test]
fn tools_are_called_and_answered() {
    for template in [HERMES, LLAMA, MISTRAL] {
        let server = Server::new(template);
        for choice in [
            json!({ "type": "any" }),
            json!({ "type": "tool", "name": "now" }),
        ] {
            let fields =
                json!({ "tools": custom(), "tool_choice": choice, "max_tokens": 600, "seed": 3 });
            let answer = answered(&server, fields.clone());
            assert_eq!(answer["stop_reason"], "tool_use", "{answer}");
            let (blocks, end) = assembled(&streamed(&server, fields));
            assert_eq!(end["delta"]["stop_reason"], "tool_use");
            let content = answer["content"].as_array().unwrap();
            assert_eq!(blocks.len(), content.len());
            let mut results = Vec::new();
            for (block, streamed) in content.iter().zip(blocks) {
                assert_eq!(
                    (&block["name"], &block["input"]),
                    (&streamed["name"], &streamed["input"])
                );
                let name = check_call(&json!({ "id": block["id"], "type": "function",
                    "function": { "name": block["name"], "arguments": block["input"].to_string() } }));
                if choice["type"] == "tool" {
                    assert_eq!(name, "now");
                }
                results.push(json!({ "type": "tool_result", "tool_use_id": block["id"], "is_error": false,
                    "content": [{ "type": "text", "text": "5" }], "cache_control": { "type": "ephemeral" } }));
            }
            // The second round has the answer as it came.
            let messages = json!([{ "role": "user", "content": "?" }, { "role": "assistant", "content": content },
                { "role": "user", "content": results }]);
            let answer = answered(
                &server,
                json!({ "messages": messages, "tools": custom(), "tool_choice": { "type": "none" } }),
            );
            assert_eq!(answer["content"][0]["type"], "text");
            assert!(count(&server, json!({ "messages": messages, "tools": custom() })) > 200);
        }
        let single = json!({ "tools": custom(), "max_tokens": 600, "seed": 9,
            "tool_choice": { "type": "any", "disable_parallel_tool_use": true } });
        assert_eq!(
            answered(&server, single)["content"]
                .as_array()
                .unwrap()
                .len(),
            1
        );
    }
}

#[test]
fn reasoning_is_a_block_if_it_is_requested() {
    let server = Server::new(THINKING);
    let fields = |thinking: Value| json!({ "guided_choice": [ANSWER], "thinking": thinking, "max_tokens": 60 });
    let text = json!({ "type": "text", "text": "yes" });
    let thought = json!({ "type": "thinking", "thinking": "ab", "signature": "" });
    let enabled = json!({ "type": "enabled", "budget_tokens": 1024 });
    for (thinking, content) in [
        (enabled.clone(), json!([thought, text])),
        (json!({ "type": "adaptive" }), json!([thought, text])),
        (
            json!({ "type": "adaptive", "display": "omitted" }),
            json!([text]),
        ),
        (json!({ "type": "disabled" }), json!([text])),
        (Value::Null, json!([text])),
    ] {
        assert_eq!(
            answered(&server, fields(thinking.clone()))["content"],
            content
        );
        assert_eq!(
            json!(assembled(&streamed(&server, fields(thinking))).0),
            content
        );
    }
    // The switch of the template, and the reasoning of an earlier answer.
    let user = json!({ "role": "user", "content": "?" });
    let (off, on) = (
        count(&server, json!({})),
        count(&server, json!({ "thinking": enabled })),
    );
    assert_eq!(off - on, "false".len() as u64 - "true".len() as u64);
    let earlier = |content: Value| {
        let messages = json!([user, { "role": "assistant", "content": content }, user]);
        count(&server, json!({ "messages": messages }))
    };
    let added = earlier(json!([thought, text])) - earlier(json!([text]));
    assert_eq!(added as usize, ANSWER.len() - "yes".len());
    let redacted = json!([{ "type": "redacted_thinking", "data": "x" }, text]);
    assert_eq!(earlier(redacted), earlier(json!([text])));
}

#[test]
fn the_stop_sequence_is_named() {
    let server = Server::new(HERMES);
    let letters = json!({ "97": 100 });
    let answer = answered(
        &server,
        json!({ "logit_bias": letters, "stop_sequences": ["b", "aaa"] }),
    );
    assert_eq!(answer["stop_reason"], "stop_sequence", "{answer}");
    assert_eq!(answer["stop_sequence"], "aaa");
    assert_eq!(answer["content"], json!([{ "type": "text", "text": "" }]));
    let answer = answered(
        &server,
        json!({ "logit_bias": letters, "stop_sequences": ["b"] }),
    );
    assert_eq!(answer["stop_reason"], "max_tokens");
    assert_eq!(answer["stop_sequence"], Value::Null);
}

#[test]
fn the_last_message_of_the_assistant_is_continued() {
    let server = Server::new(
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}",
    );
    let user = json!({ "role": "user", "content": "?" });
    let prefix = json!({ "role": "assistant", "content": "yes, " });
    let tokens = |messages: Value| count(&server, json!({ "messages": messages }));
    let added = tokens(json!([user, prefix])) - tokens(json!([user]));
    assert_eq!(added as usize, "yes, ".len());
}

#[test]
fn the_form_of_an_answer_is_enforced() {
    let server = Server::new(HERMES);
    let schema = json!({ "type": "object", "properties": { "n": { "enum": [1, 2] } }, "required": ["n"], "additionalProperties": false });
    let config = json!({ "format": { "type": "json_schema", "schema": schema }, "effort": "low" });
    let answer = answered(
        &server,
        json!({ "output_config": config, "max_tokens": 60 }),
    );
    let text = answer["content"][0]["text"].as_str().unwrap();
    let object: Value = serde_json::from_str(text).unwrap();
    assert!([1, 2].contains(&object["n"].as_i64().unwrap()), "{text}");
}

#[test]
fn errors_are_those_of_anthropic() {
    let server = Server::new(HERMES);
    let image = json!([{ "role": "user", "content": [{ "type": "image", "source": {} }] }]);
    let result = json!([{ "role": "assistant", "content": [{ "type": "tool_result", "tool_use_id": "a" }] }]);
    for (fields, kind, beginning) in [
        (
            json!({ "messages": [] }),
            "invalid_request_error",
            "messages: must not be empty",
        ),
        (
            json!({ "messages": image }),
            "invalid_request_error",
            "messages[0].content: ",
        ),
        (
            json!({ "messages": result }),
            "invalid_request_error",
            "messages[0].content[0].type: must be one of this role",
        ),
        (
            json!({ "max_token": 5 }),
            "invalid_request_error",
            "max_token: this field is not supported; did you mean max_tokens?",
        ),
        (
            json!({ "tools": [{ "name": "a b", "input_schema": {} }] }),
            "invalid_request_error",
            "tools[0].name: must be 1 to 64",
        ),
        (
            json!({ "tools": [{ "name": "a", "input_schema": { "type": "array" } }] }),
            "invalid_request_error",
            "tools[0].input_schema.type: must be",
        ),
        (
            json!({ "tool_choice": { "type": "any" } }),
            "invalid_request_error",
            "tool_choice: needs tools",
        ),
        (
            json!({ "tool_choice": { "type": "tool", "name": "x" }, "tools": custom() }),
            "invalid_request_error",
            "tool_choice.name: must name one of tools",
        ),
        (
            json!({ "stop_sequences": [""] }),
            "invalid_request_error",
            "stop_sequences",
        ),
        (
            json!({ "container": "c" }),
            "invalid_request_error",
            "container: is not supported",
        ),
        (
            json!({ "model": "x" }),
            "not_found_error",
            "the model \"x\" does not exist",
        ),
    ] {
        let (status, body) = post(&server, "/v1/messages", fields);
        assert_eq!(
            status,
            if kind == "not_found_error" { 404 } else { 400 },
            "{body}"
        );
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            (&body["type"], &body["error"]["type"]),
            (&json!("error"), &json!(kind)),
            "{body}"
        );
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(beginning), "{message}");
    }
    // Fields without effect.
    let ignored = json!({ "metadata": { "user_id": "u" }, "service_tier": "auto", "cache_control": { "type": "ephemeral" },
        "context_management": { "edits": [] }, "top_k": 5, "top_p": 0.9, "temperature": 0.5 });
    answered(&server, ignored);
    let plain = Server::new(PLAIN);
    assert_eq!(answered(&plain, json!({}))["type"], "message");
}
