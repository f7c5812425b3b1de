//! Function calling with `/v1/responses`.

use serde_json::{Value, json};

use super::entry::{HERMES, LLAMA, MISTRAL, MISTRAL_13, PLAIN, Server};
use super::{check_call, tools};

/// The functions of [`tools`] in the format of this API.
pub fn flat() -> Vec<Value> {
    let flattened = |tool: &Value| {
        let mut flat = tool["function"].clone();
        flat["type"] = "function".into();
        flat
    };
    tools().as_array().unwrap().iter().map(flattened).collect()
}

fn post(server: &Server, fields: Value) -> (u16, String) {
    let body = json!({ "model": "m", "input": "?" });
    server.post("/v1/responses", body, fields)
}

#[track_caller]
fn answered(server: &Server, fields: Value) -> Value {
    let (status, body) = post(server, fields);
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[track_caller]
fn refused(server: &Server, fields: Value) -> (String, String) {
    let (status, body) = post(server, fields);
    assert_eq!(status, 400, "{body}");
    let error = &serde_json::from_str::<Value>(&body).unwrap()["error"];
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    (text("param"), text("message"))
}

#[track_caller]
fn streamed(server: &Server, mut fields: Value) -> Vec<Value> {
    fields["stream"] = true.into();
    let (status, body) = post(server, fields);
    assert_eq!(status, 200, "{body}");
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

/// Checks a call item, and returns the function's name.
#[track_caller]
fn check_item(item: &Value) -> String {
    assert_eq!(item["type"], "function_call", "{item}");
    assert!(item["id"].as_str().unwrap().starts_with("fc_"), "{item}");
    check_call(&json!({ "id": item["call_id"], "type": "function",
        "function": { "name": item["name"], "arguments": item["arguments"] } }))
}

#[test]
fn a_required_call_is_an_output_item() {
    for template in [HERMES, LLAMA, MISTRAL, MISTRAL_13] {
        let server = Server::new(template);
        let mut names = Vec::new();
        for seed in 0..12 {
            let response = answered(
                &server,
                json!({ "tools": flat(), "tool_choice": "required", "parallel_tool_calls": false,
                    "seed": seed, "temperature": 1.5 }),
            );
            assert_eq!(response["status"], "completed", "{response}");
            let output = response["output"].as_array().unwrap();
            assert_eq!(output.len(), 1, "{response}");
            assert_eq!(output[0]["status"], "completed", "{response}");
            names.push(check_item(&output[0]));
            assert_eq!(response["tools"][0]["name"], "get_weather");
            assert_eq!(response["tool_choice"], "required");
            assert_eq!(response["parallel_tool_calls"], false);
        }
        names.sort();
        names.dedup();
        assert_eq!(names, ["get_weather", "now"], "either is drawn");
        let named = json!({ "type": "function", "name": "now" });
        let response = answered(&server, json!({ "tools": flat(), "tool_choice": named }));
        assert_eq!(check_item(&response["output"][0]), "now");
        assert_eq!(response["tool_choice"], named);
    }
}

/// The kinds of the events in order, with repetitions removed.
fn kinds(events: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> = events.iter().map(|e| e["type"].as_str().unwrap()).collect();
    kinds.dedup();
    kinds
}

#[test]
fn a_streamed_call_has_the_documented_events() {
    let server = Server::new(HERMES);
    let fields = json!({ "tools": flat(), "tool_choice": "required", "parallel_tool_calls": false, "seed": 4 });
    let whole = answered(&server, fields.clone());
    let events = streamed(&server, fields);
    assert_eq!(
        kinds(&events),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], at, "{event}");
    }
    let of = |kind: &str| events.iter().find(|event| event["type"] == kind).unwrap();
    let added = of("response.output_item.added");
    let expected = &whole["output"][0];
    assert_eq!(added["item"]["arguments"], "");
    assert_eq!(added["item"]["status"], "in_progress");
    assert_eq!(added["item"]["name"], expected["name"]);
    let deltas = events.iter().filter_map(|event| event["delta"].as_str());
    let deltas: String = deltas.collect();
    assert_eq!(deltas, expected["arguments"].as_str().unwrap());
    let done = of("response.function_call_arguments.done");
    assert_eq!(done["arguments"], expected["arguments"]);
    assert_eq!(done["item_id"], added["item"]["id"]);
    assert_eq!(done["output_index"], 0);
    let last = &events.last().unwrap()["response"]["output"][0];
    assert_eq!(last, &of("response.output_item.done")["item"]);
    check_item(last);
}

#[test]
fn text_and_calls_are_separate_items() {
    let server = Server::new(LLAMA);
    // The weights avoid braces first, and then produce only braces.
    let ask = |bias: i32| json!({ "tools": flat(), "logit_bias": { "123": bias }, "temperature": 0, "max_output_tokens": 200 });
    let text = answered(&server, ask(-100));
    assert_eq!(text["output"][0]["type"], "message", "{text}");
    let called = answered(&server, ask(100));
    check_item(&called["output"][0]);
    // A truncated text is incomplete, and so is a truncated call.
    let cut = answered(
        &server,
        json!({ "tools": flat(), "max_output_tokens": 40, "tool_choice": { "type": "function", "name": "get_weather" } }),
    );
    assert_eq!(cut["status"], "incomplete", "{cut}");
    assert_eq!(cut["output"][0]["status"], "incomplete", "{cut}");
    assert_eq!(cut["output"][0]["name"], "get_weather", "{cut}");
    // Several calls are separate items with their own events.
    let server = Server::new(MISTRAL_13);
    let many = json!({ "tools": [flat()[1]], "tool_choice": "required", "max_output_tokens": 100,
        "logit_bias": { "91": 100 }, "temperature": 0 });
    let events = streamed(&server, many);
    let added = events
        .iter()
        .filter(|event| event["type"] == "response.output_item.added");
    let indices: Vec<u64> = added
        .map(|event| event["output_index"].as_u64().unwrap())
        .collect();
    assert!(indices.len() > 1, "{indices:?}");
    assert_eq!(indices, (0..indices.len() as u64).collect::<Vec<_>>());
    let output = events.last().unwrap()["response"]["output"]
        .as_array()
        .unwrap();
    assert_eq!(output.len(), indices.len());
}

#[test]
fn calls_and_results_match_chat_completions() {
    let server = Server::new(HERMES);
    let input = json!([
        { "role": "user", "content": "Weather?" },
        { "type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
            "content": [{ "type": "output_text", "text": "I look. ", "annotations": [], "logprobs": [] }] },
        { "type": "function_call", "id": "fc_1", "call_id": "a", "name": "now", "arguments": "{}", "status": "completed" },
        { "type": "function_call", "call_id": "b", "name": "now", "arguments": "{\"z\": 1}" },
        { "type": "function_call_output", "call_id": "a", "output": "7" },
        { "type": "function_call_output", "call_id": "b", "output": [{ "type": "input_text", "text": "8" }] },
    ]);
    let call = |id: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": "now", "arguments": arguments } });
    let messages = json!([
        { "role": "user", "content": "Weather?" },
        { "role": "assistant", "content": "I look. ", "tool_calls": [call("a", "{}"), call("b", "{\"z\": 1}")] },
        { "role": "tool", "tool_call_id": "a", "content": "7" },
        { "role": "tool", "tool_call_id": "b", "content": "8" },
    ]);
    let response = answered(
        &server,
        json!({ "input": input, "tools": flat(), "tool_choice": "none", "temperature": 0, "max_output_tokens": 20 }),
    );
    let chat = server
        .answered(json!({ "messages": messages, "temperature": 0, "max_completion_tokens": 20 }));
    assert_eq!(
        response["output"][0]["content"][0]["text"],
        chat["choices"][0]["message"]["content"]
    );
    assert_eq!(
        response["usage"]["input_tokens"],
        chat["usage"]["prompt_tokens"]
    );
    // The output is valid as input.
    let first = answered(
        &server,
        json!({ "tools": flat(), "tool_choice": "required", "parallel_tool_calls": false }),
    );
    let mut next = vec![json!({ "role": "user", "content": "?" })];
    next.extend(first["output"].as_array().unwrap().iter().cloned());
    next.push(json!({ "type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "9" }));
    answered(
        &server,
        json!({ "input": next, "tools": flat(), "max_output_tokens": 3 }),
    );
}

#[test]
fn a_template_without_tool_support_calls_functions() {
    let server = Server::new(PLAIN);
    let response = answered(
        &server,
        json!({ "tools": flat(), "tool_choice": "required", "parallel_tool_calls": false }),
    );
    assert_eq!(response["output"][0]["type"], "function_call", "{response}");
}

#[test]
fn log_probabilities_match_chat_completions() {
    let server = Server::new(PLAIN);
    let include = json!(["message.output_text.logprobs"]);
    let fields =
        json!({ "include": include, "top_logprobs": 2, "temperature": 0, "max_output_tokens": 12 });
    let response = answered(&server, fields.clone());
    let chat = server.answered(json!({ "logprobs": true, "top_logprobs": 2, "temperature": 0, "max_completion_tokens": 12 }));
    let part = &response["output"][0]["content"][0];
    assert_eq!(part["logprobs"], chat["choices"][0]["logprobs"]["content"]);
    assert_eq!(
        part["logprobs"][0]["top_logprobs"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(response["top_logprobs"], 2);
    // In a stream, each delta has the log-probabilities of its tokens.
    let events = streamed(&server, fields);
    let deltas = events
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta");
    let of_deltas: Vec<Value> = deltas
        .flat_map(|event| event["logprobs"].as_array().unwrap().clone())
        .collect();
    let all = part["logprobs"].as_array().unwrap();
    assert_eq!(of_deltas, all[..of_deltas.len()]);
    let last = &events.last().unwrap()["response"]["output"][0]["content"][0];
    assert_eq!(last["logprobs"], part["logprobs"]);
    // They are absent unless requested.
    let plain = answered(&server, json!({ "max_output_tokens": 3 }));
    assert_eq!(plain["output"][0]["content"][0]["logprobs"], json!([]));
    for (fields, param) in [
        (json!({ "top_logprobs": 2 }), "top_logprobs"),
        (
            json!({ "include": include, "top_logprobs": 21 }),
            "top_logprobs",
        ),
        (
            json!({ "include": ["file_search_call.results"] }),
            "include[0]",
        ),
    ] {
        assert_eq!(refused(&server, fields).0, param);
    }
}
