//! Conversations for templates that write one call per message, and either its text or its reasoning.

use serde_json::{Value, json};

use super::built_in::{RESULT_ROLES, text_of};

/// The field of a message's reasoning.
const REASONING: &str = "reasoning_content";

/// The messages with at most one call each. The result of a call follows it, as templates name the last function for a result.
/// Text before a call joins the reasoning, if there is any.
pub(crate) fn with_single_calls(messages: Vec<Value>) -> Vec<Value> {
    let mut written = Vec::new();
    let mut messages = messages.into_iter().peekable();
    while let Some(mut message) = messages.next() {
        let Some(calls) = message
            .as_object_mut()
            .and_then(|it| it.shift_remove("tool_calls"))
        else {
            written.push(message);
            continue;
        };
        let Value::Array(calls) = calls else {
            written.push(message);
            continue;
        };
        let mut results = Vec::new();
        while let Some(result) = messages.next_if(is_result) {
            results.push(result);
        }
        join_text(&mut message);
        let count = calls.len();
        for (rank, call) in calls.into_iter().enumerate() {
            let id = call["id"].clone();
            let mut with_call = match rank {
                0 => message.clone(),
                _ => json!({ "role": message["role"] }),
            };
            with_call["tool_calls"] = Value::Array(vec![call]);
            written.push(with_call);
            let found = results.iter().position(|result| {
                let of_call = &result["tool_call_id"];
                *of_call == id || of_call.is_null()
            });
            if let Some(found) = found {
                written.push(results.remove(found));
            }
        }
        if count == 0 {
            written.push(message);
        }
        written.append(&mut results);
    }
    written
}

/// Moves the text of a message with reasoning to its end.
fn join_text(message: &mut Value) {
    let text = text_of(message);
    let reasoning = message[REASONING].as_str().unwrap_or_default();
    if text.is_empty() || reasoning.is_empty() {
        return;
    }
    message[REASONING] = [reasoning, "\n\n", &text].concat().into();
    if let Some(fields) = message.as_object_mut() {
        fields.shift_remove("content");
    }
}

fn is_result(message: &Value) -> bool {
    let role = message["role"].as_str();
    role.is_some_and(|role| RESULT_ROLES.contains(&role))
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    fn call(id: &str) -> Value {
        json!({ "id": id, "type": "function", "function": { "name": id, "arguments": "{}" } })
    }

    fn result(id: &str) -> Value {
        json!({ "role": "tool", "tool_call_id": id, "content": id })
    }

    #[test]
    fn each_call_is_followed_by_its_result() {
        let user = json!({ "role": "user", "content": "?" });
        let text = json!({ "role": "assistant", "content": "So." });
        let calls = |calls: Vec<Value>| json!({ "role": "assistant", "tool_calls": calls });
        let several = json!({ "role": "assistant", "content": "I look.", "tool_calls": [call("a"), call("b"), call("c")] });
        let first = json!({ "role": "assistant", "content": "I look.", "tool_calls": [call("a")] });
        let nameless = json!({ "role": "tool", "content": "7" });
        for (messages, expected) in [
            (
                vec![
                    user.clone(),
                    several,
                    result("c"),
                    result("a"),
                    text.clone(),
                ],
                vec![
                    user.clone(),
                    first,
                    result("a"),
                    calls(vec![call("b")]),
                    calls(vec![call("c")]),
                    result("c"),
                    text.clone(),
                ],
            ),
            (
                vec![
                    calls(vec![call("a"), call("b")]),
                    nameless.clone(),
                    nameless.clone(),
                ],
                vec![
                    calls(vec![call("a")]),
                    nameless.clone(),
                    calls(vec![call("b")]),
                    nameless.clone(),
                ],
            ),
            // A result without a call, and no calls.
            (
                vec![calls(vec![call("a")]), result("b"), user.clone()],
                vec![calls(vec![call("a")]), result("b"), user.clone()],
            ),
            (
                vec![json!({ "role": "assistant", "content": "So.", "tool_calls": [] })],
                vec![text],
            ),
            (
                vec![json!({ "role": "tool" }), json!([])],
                vec![json!({ "role": "tool" }), json!([])],
            ),
        ] {
            assert_eq!(with_single_calls(messages), expected);
        }
    }

    #[test]
    fn text_before_a_call_joins_the_reasoning() {
        let message = |content: Value, reasoning: &str| json!({ "role": "assistant", "content": content, "reasoning_content": reasoning, "tool_calls": [call("a")] });
        let joined = json!({ "role": "assistant", "reasoning_content": "Hm.\n\nI look.", "tool_calls": [call("a")] });
        let parts = json!([{ "type": "text", "text": "I look." }]);
        for content in [json!("I look."), parts] {
            assert_eq!(
                with_single_calls(vec![message(content, "Hm.")]),
                slice::from_ref(&joined)
            );
        }
        let without = message(json!("I look."), "");
        assert_eq!(with_single_calls(vec![without.clone()]), [without]);
    }
}
