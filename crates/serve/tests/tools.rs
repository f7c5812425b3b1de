//! Function calling over HTTP. The weights are random: answers must be valid regardless of the model's
//! output.

mod built_in;
mod clients;
pub mod entry;
mod fields;
mod harmony;
mod messages;
mod mistral;
mod named_templates;
mod ollama;
mod ollama_models;
mod play;
mod prompt_logprobs;
mod published_fields;
mod reasoning;
mod responses;
mod tagged;
mod tokens;

use entry::{CODER, GEMMA, HERMES, LLAMA, MISTRAL, MISTRAL_13, PLAIN, Server};
use serde_json::{Value, json};

/// A template of each kind of calls, and one that does not support tools.
const TEMPLATES: [&str; 7] = [HERMES, LLAMA, MISTRAL, MISTRAL_13, CODER, GEMMA, PLAIN];

/// Two functions whose arguments are short for any output.
pub fn tools() -> Value {
    json!([
        { "type": "function", "function": {
            "name": "get_weather",
            "description": "The weather.",
            "parameters": {
                "type": "object",
                "properties": { "city": { "enum": ["Köln", "Oslo"] }, "days": { "type": "integer", "minimum": 1, "maximum": 9 } },
                "required": ["city", "days"],
                "additionalProperties": false,
            },
            "strict": true,
        } },
        { "type": "function", "function": { "name": "now" } },
    ])
}

/// Checks a call against the functions, and returns its name.
#[track_caller]
fn check_call(call: &Value) -> String {
    let id = call["id"].as_str().unwrap();
    let is_short = id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric());
    assert!(id.starts_with("call") || is_short, "{call}");
    assert_eq!(call["type"], "function", "{call}");
    let name = call["function"]["name"].as_str().unwrap();
    let arguments = call["function"]["arguments"].as_str().unwrap();
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    match name {
        "get_weather" => {
            assert!(
                ["Köln", "Oslo"].contains(&arguments["city"].as_str().unwrap()),
                "{call}"
            );
            assert!(
                (1..=9).contains(&arguments["days"].as_i64().unwrap()),
                "{call}"
            );
            assert_eq!(arguments.as_object().unwrap().len(), 2, "{call}");
        }
        "now" => assert_eq!(arguments, json!({}), "{call}"),
        other => panic!("{other}: {call}"),
    }
    name.to_owned()
}

#[test]
fn a_required_call_is_always_valid() {
    for template in TEMPLATES {
        let server = Server::new(template);
        let mut names = Vec::new();
        for seed in 0..12 {
            let answer = server.answered(json!({
                "tools": tools(), "tool_choice": "required", "parallel_tool_calls": false, "seed": seed, "temperature": 1.5,
            }));
            let choice = &answer["choices"][0];
            assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
            assert_eq!(choice["message"]["content"], Value::Null, "{answer}");
            let calls = choice["message"]["tool_calls"].as_array().unwrap();
            assert_eq!(calls.len(), 1, "{answer}");
            names.push(check_call(&calls[0]));
        }
        names.sort();
        names.dedup();
        assert_eq!(names, ["get_weather", "now"], "either is drawn");
    }
}

#[test]
fn a_named_function_is_called() {
    for template in TEMPLATES {
        let server = Server::new(template);
        for name in ["now", "get_weather"] {
            let choice = json!({ "type": "function", "function": { "name": name } });
            let answer = server
                .answered(json!({ "tools": tools(), "tool_choice": choice, "n": 2, "seed": 3 }));
            for choice in answer["choices"].as_array().unwrap() {
                assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
                let calls = choice["message"]["tool_calls"].as_array().unwrap();
                assert_eq!(calls.len(), 1, "{answer}");
                assert_eq!(check_call(&calls[0]), name);
            }
        }
    }
}

/// The message and finish reason that a client assembles from the deltas of a stream.
fn joined(events: &[Value]) -> (Value, Value) {
    let (mut content, mut calls, mut reason) = (String::new(), Vec::<Value>::new(), Value::Null);
    for event in events {
        let choice = &event["choices"][0];
        let delta = &choice["delta"];
        content += delta["content"].as_str().unwrap_or_default();
        for part in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = part["index"].as_u64().unwrap() as usize;
            let arguments = part["function"]["arguments"].as_str().unwrap();
            match calls.get_mut(index) {
                None => {
                    assert_eq!(index, calls.len(), "{part}");
                    assert!(
                        part["id"].is_string() && part["function"]["name"].is_string(),
                        "{part}"
                    );
                    calls.push(part.clone());
                }
                Some(call) => {
                    assert!(
                        part.get("id").is_none() && part["function"].get("name").is_none(),
                        "{part}"
                    );
                    let whole =
                        call["function"]["arguments"].as_str().unwrap().to_owned() + arguments;
                    call["function"]["arguments"] = whole.into();
                }
            }
        }
        if !choice["finish_reason"].is_null() {
            assert!(reason.is_null(), "{event}");
            reason = choice["finish_reason"].clone();
        }
    }
    (json!({ "content": content, "tool_calls": calls }), reason)
}

#[test]
fn streamed_deltas_form_the_complete_answer() {
    for template in TEMPLATES {
        let server = Server::new(template);
        for tool_choice in ["required", "auto"] {
            let fields = json!({ "tools": tools(), "tool_choice": tool_choice, "parallel_tool_calls": false,
                "seed": 5, "max_tokens": 300 });
            let whole = server.answered(fields.clone());
            let choice = &whole["choices"][0];
            let (message, reason) = joined(&server.streamed(fields));
            assert_eq!(reason, choice["finish_reason"]);
            assert_eq!(
                message["content"].as_str(),
                Some(choice["message"]["content"].as_str().unwrap_or_default())
            );
            let functions = |message: &Value| -> Vec<Value> {
                let calls = message["tool_calls"].as_array().into_iter().flatten();
                calls.map(|call| call["function"].clone()).collect()
            };
            assert_eq!(functions(&message), functions(&choice["message"]));
            if tool_choice == "required" {
                let events = message["tool_calls"].as_array().unwrap();
                check_call(&events[0]);
            }
        }
    }
}

#[test]
fn answers_can_be_text_or_calls() {
    let server = Server::new(LLAMA);
    // The weights avoid braces first, and then produce only braces.
    let ask = |bias: i32| {
        server.answered(json!({ "tools": tools(), "logit_bias": { "123": bias }, "temperature": 0, "max_tokens": 200 }))
    };
    let text = ask(-100);
    let message = &text["choices"][0]["message"];
    assert!(
        message["content"].is_string() && message.get("tool_calls").is_none(),
        "{text}"
    );
    assert_ne!(text["choices"][0]["finish_reason"], "tool_calls");
    let called = ask(100);
    assert_eq!(
        called["choices"][0]["finish_reason"], "tool_calls",
        "{called}"
    );
    check_call(&called["choices"][0]["message"]["tool_calls"][0]);
    // A truncated call keeps its beginning.
    let cut = server.answered(json!({ "tools": tools(), "max_tokens": 40,
        "tool_choice": { "type": "function", "function": { "name": "get_weather" } } }));
    let choice = &cut["choices"][0];
    assert_eq!(choice["finish_reason"], "length", "{cut}");
    assert_eq!(
        choice["message"]["tool_calls"][0]["function"]["name"], "get_weather",
        "{cut}"
    );
}

#[test]
fn the_template_formats_tools_calls_and_results() {
    let server = Server::new(HERMES);
    let messages = json!([
        { "role": "user", "content": "Weather?" },
        { "role": "assistant", "content": null, "refusal": null, "tool_calls": [
            { "id": "call_1", "type": "function", "function": { "name": "now", "arguments": "{\"z\": 1, \"a\": [\"é\"]}" } },
        ] },
        { "role": "tool", "tool_call_id": "call_1", "content": "7 °C" },
    ]);
    // Jinja removes the line break after a block.
    let written = |tools: &str| {
        format!(
            "{tools}[user]Weather?[assistant]<tool_call>\n{{\"name\": \"now\", \"arguments\": {{\"z\": 1, \"a\": [\"é\"]}}}}\n</tool_call>\
             [tool]7 °C[assistant]"
        )
    };
    // One token per byte, after the end-of-text token.
    let tokens = |answer: &Value| answer["usage"]["prompt_tokens"].as_u64().unwrap() as usize - 1;
    let tool = json!([{ "type": "function", "function": { "name": "now", "parameters": { "type": "object" }, "strict": false } }]);
    let line = "{\"type\": \"function\", \"function\": {\"name\": \"now\", \"parameters\": {\"type\": \"object\"}}}\n";
    let fields = json!({ "messages": messages, "tools": tool, "max_tokens": 1 });
    assert_eq!(tokens(&server.answered(fields)), written(line).len());
    // If no function may be called, the prompt contains none.
    let fields =
        json!({ "messages": messages, "tools": tool, "tool_choice": "none", "max_tokens": 1 });
    assert_eq!(tokens(&server.answered(fields)), written("").len());
    let fields = json!({ "messages": messages, "max_tokens": 1 });
    assert_eq!(tokens(&server.answered(fields)), written("").len());
}

#[test]
fn at_most_128_tools_are_accepted() {
    let server = Server::new(HERMES);
    let many: Vec<Value> = (0..129)
        .map(|number| json!({ "type": "function", "function": { "name": format!("f{number}") } }))
        .collect();
    assert_eq!(server.refused(json!({ "tools": many })).0, "tools");
}

#[test]
fn the_tool_with_an_invalid_schema_is_named() {
    let server = Server::new(HERMES);
    let tool = |number: usize, parameters: Value| json!({ "type": "function", "function": { "name": format!("f{number}"), "parameters": parameters } });
    let good = json!({ "properties": { "a": { "type": "integer" } } });
    let bad = json!({ "properties": { "a": { "$ref": "#/$defs/none" } }, "required": ["a"] });
    for (count, at) in [(1, 0), (2, 1), (5, 2), (9, 0), (9, 8)] {
        let tools = (0..count).map(|number| {
            let parameters = if number == at { &bad } else { &good };
            tool(number, parameters.clone())
        });
        let tools: Vec<Value> = tools.collect();
        let (param, message) = server.refused(json!({ "tools": tools }));
        assert_eq!(param, format!("tools[{at}].function.parameters"));
        assert!(message.contains("$defs/none"), "{message}");
        assert!(message.starts_with(&param), "{message}");
    }
    // For a function chosen by name, only its own schema is compiled.
    let tools = [tool(0, bad.clone()), tool(1, good), tool(2, bad)];
    let choice = json!({ "type": "function", "function": { "name": "f2" } });
    let (param, _) = server.refused(json!({ "tools": tools, "tool_choice": choice }));
    assert_eq!(param, "tools[2].function.parameters");
}
