//! The playground's requests: parts of answers, continued answers, calls, and the controls of reasoning.

use serde_json::{Value, json};

use super::entry::{HERMES, Server};
use super::reasoning::{ANSWER, THINKING};
use super::{check_call, tools};

/// The events of an answer.
fn played(server: &Server, fields: Value) -> Vec<Value> {
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "?" }], "top_logprobs": 0 });
    let (status, answer) = server.post("/api/play", body, fields);
    assert_eq!(status, 200, "{answer}");
    let lines = answer.lines().filter_map(|line| line.strip_prefix("data:"));
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The parts of an answer: those of continued tokens, of new ones, and of text that was held back.
fn parts(events: &[Value]) -> Vec<Value> {
    let of = |parts: &Value| parts.as_array().cloned().unwrap_or_default();
    let continued = of(&events[0]["begin"]["parts"]);
    let continued = continued.iter().flat_map(of);
    let new = events.iter().flat_map(|event| {
        [&event["token"]["parts"], &event["rest"]["parts"]]
            .map(of)
            .concat()
    });
    continued.chain(new).collect()
}

fn joined(parts: &[Value], kind: &str) -> String {
    parts
        .iter()
        .filter_map(|part| part[kind].as_str())
        .collect()
}

fn ids(events: &[Value]) -> Vec<u64> {
    let ids = events
        .iter()
        .filter_map(|event| event["token"]["id"].as_u64());
    ids.collect()
}

#[test]
fn reasoning_is_a_part_wherever_an_answer_is_continued() {
    let server = Server::new(THINKING);
    let whole = played(&server, json!({ "guided_choice": [ANSWER] }));
    let ids = ids(&whole);
    assert_eq!(ids.len(), ANSWER.len());
    for kept in 0..ids.len() {
        let rest = &ANSWER[kept..];
        let continued = json!({ "continued": ids[..kept], "guided_choice": [rest] });
        let parts = parts(&played(&server, continued));
        assert_eq!(joined(&parts, "reasoning"), "ab", "after {kept} tokens");
        assert_eq!(joined(&parts, "text"), "yes", "after {kept} tokens");
    }
    // Reasoning that is cut off within a tag is the rest.
    let cut = played(
        &server,
        json!({ "guided_choice": [ANSWER], "max_tokens": 14 }),
    );
    assert_eq!(joined(&parts(&cut), "reasoning"), "ab\n</t");
}

#[test]
fn an_answer_that_is_only_text_has_no_parts() {
    let plain = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let events = played(&Server::new(plain), json!({ "guided_choice": ["yes"] }));
    assert!(
        events
            .iter()
            .all(|event| event["token"].get("parts").is_none())
    );
    let texts = events
        .iter()
        .filter_map(|event| event["token"]["text"].as_str());
    assert_eq!(texts.collect::<String>(), "yes");
}

#[test]
fn calls_are_parts_and_have_results() {
    let server = Server::new(HERMES);
    let required = json!({ "tools": tools(), "tool_choice": "required", "seed": 2, "temperature": 1.5, "max_tokens": 400 });
    let events = played(&server, required.clone());
    let parts = parts(&events);
    let call = parts.iter().find_map(|part| part.get("call")).unwrap();
    let end = parts
        .iter()
        .skip(1)
        .position(|part| part.get("call").is_some());
    let first = &parts[..end.map_or(parts.len(), |end| end + 1)];
    let call = json!({ "id": call["id"], "type": "function", "function": {
        "name": call["name"], "arguments": joined(first, "arguments"),
    } });
    check_call(&call);
    let messages = json!([
        { "role": "user", "content": "?" },
        { "role": "assistant", "content": "", "tool_calls": [call] },
        { "role": "tool", "tool_call_id": call["id"], "content": "18" },
    ]);
    let mut fields = required;
    fields["messages"] = messages;
    assert!(played(&server, fields.clone()).last().unwrap()["end"].is_object());
    // An answer is continued within a call without its constraint.
    let ids = ids(&events);
    fields["continued"] = ids[..ids.len() / 2].into();
    assert!(played(&server, fields).last().unwrap()["end"].is_object());
}

#[test]
fn reasoning_has_the_controls_of_the_template() {
    for (template, switch, effort) in [(THINKING, true, true), (HERMES, false, false)] {
        let server = Server::new(template);
        let (_, shown) = server.get("/api/models");
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let model = &shown["models"][0];
        assert_eq!(model["kind"], "decoder");
        assert_eq!(
            model["reasoning"],
            json!({ "switch": switch, "effort": effort })
        );
    }
    let server = Server::new(THINKING);
    let prompt_tokens = |effort: &str| {
        let fields = json!({ "reasoning_effort": effort, "max_tokens": 1 });
        played(&server, fields)[0]["begin"]["prompt_tokens"]
            .as_u64()
            .unwrap()
    };
    // `False` and `True` are written into the prompt.
    assert_eq!(prompt_tokens("none"), prompt_tokens("high") + 1);
}
