//! Function calls in Mistral's formats, in conversations and in answers.

use serde_json::{Value, json};

use super::entry::{MISTRAL, MISTRAL_13, Server};
use super::{check_call, tools};

fn call(id: &str) -> Value {
    json!({ "role": "assistant", "tool_calls": [
        { "id": id, "type": "function", "function": { "name": "now", "arguments": "{}" } },
    ] })
}

#[test]
fn calls_and_results_are_formatted() {
    let server = Server::new(MISTRAL);
    let answer = server.answered(json!({ "tools": tools(),
        "tool_choice": { "type": "function", "function": { "name": "now" } } }));
    let message = &answer["choices"][0]["message"];
    let id = message["tool_calls"][0]["id"].as_str().unwrap();
    let result = json!({ "role": "tool", "tool_call_id": id, "content": "7" });
    let user = json!({ "role": "user", "content": "?" });
    let answer = server.answered(json!({ "messages": [user, message, result], "max_tokens": 1 }));
    let written = format!(
        "[user]?[TOOL_CALLS] [{{\"name\": \"now\", \"arguments\": {{}}, \"id\": \"{id}\"}}]\
         [TOOL_RESULTS] {{\"content\": 7, \"call_id\": \"{id}\"}}[/TOOL_RESULTS]"
    );
    // One token per byte, after the end-of-text token.
    assert_eq!(answer["usage"]["prompt_tokens"], written.len() + 1);
}

#[test]
fn an_invalid_call_id_is_a_client_error() {
    let server = Server::new(MISTRAL);
    let (param, message) = server.refused(json!({ "messages": [call("call_1")] }));
    assert_eq!(param, "messages");
    assert!(message.contains("length 9"), "{message}");
}

#[test]
fn several_calls_form_one_list() {
    for template in [MISTRAL, MISTRAL_13] {
        let server = Server::new(template);
        // The weights prefer the comma of a list, or the bracket of a marker, wherever it is allowed.
        let bias = if template == MISTRAL { "44" } else { "91" };
        let ask = |parallel: bool| {
            server.answered(
                json!({ "tools": [tools()[1]], "tool_choice": "required", "max_tokens": 300,
                "logit_bias": { bias: 100 }, "temperature": 0, "parallel_tool_calls": parallel }),
            )
        };
        let one = ask(false);
        assert_eq!(one["choices"][0]["finish_reason"], "tool_calls", "{one}");
        let calls = |answer: &Value| answer["choices"][0]["message"]["tool_calls"].clone();
        assert_eq!(calls(&one).as_array().unwrap().len(), 1);
        let many = calls(&ask(true));
        let many = many.as_array().unwrap();
        assert!(many.len() > 1, "{many:?}");
        let mut ids: Vec<&str> = many
            .iter()
            .map(|call| call["id"].as_str().unwrap())
            .collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), many.len());
        // All calls except the truncated last one are complete.
        for call in &many[..many.len() - 1] {
            assert_eq!(
                call["function"],
                json!({ "name": "now", "arguments": "{}" })
            );
        }
    }
}

#[test]
fn a_marker_that_is_a_special_token_begins_a_call() {
    let server = Server::with_special_token(MISTRAL, "[TOOL_CALLS]");
    // The weights prefer the special token wherever it is allowed.
    let ask = |tools: Value| {
        let fields = json!({ "tools": tools, "logit_bias": { "257": 100 }, "temperature": 0, "max_tokens": 200,
            "parallel_tool_calls": false });
        server.answered(fields)["choices"][0].clone()
    };
    let choice = ask(tools());
    assert_eq!(choice["finish_reason"], "tool_calls", "{choice}");
    assert_eq!(choice["message"]["content"], Value::Null, "{choice}");
    check_call(&choice["message"]["tool_calls"][0]);
}
