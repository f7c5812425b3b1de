//! Functions, calls and results as text of messages, for chat templates that do not support them.

use serde_json::{Map, Value, json};

use super::format::ToolFormat;
use super::formats::BUILT_IN;
use super::json::written_json;

/// The roles of messages with the result of a call.
pub(super) const RESULT_ROLES: [&str; 2] = ["tool", "function"];
/// The roles of messages with instructions.
const SYSTEM_ROLES: [&str; 2] = ["system", "developer"];

/// The message that has the functions and the instructions to call them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstructionsPlace {
    /// The system message.
    System,
    /// The first message of the user, for templates that do not write system messages.
    FirstUser,
}

/// The conversation for a template that does not support functions: `functions` are part of the system or first message,
/// calls are text of assistant messages, and results are text of user messages. Results in a row, and a user message after
/// them, are one message, since templates may require that roles alternate.
pub(crate) fn rewrite(
    messages: Vec<Value>,
    functions: &[Value],
    place: InstructionsPlace,
) -> Vec<Value> {
    let mut written: Vec<Value> = Vec::new();
    let mut follows_result = false;
    for message in with_written_calls(messages, BUILT_IN) {
        let role = message["role"].as_str().unwrap_or_default();
        let is_result = RESULT_ROLES.contains(&role);
        let text = match is_result {
            true => format!("<tool_response>\n{}\n</tool_response>", text_of(&message)),
            false => text_of(&message),
        };
        match written.last_mut() {
            Some(last) if follows_result && (is_result || role == "user") => {
                let between = if is_result { "\n" } else { "\n\n" };
                let text = [&*text_of(last), between, &*text].concat();
                last["content"] = text.into();
            }
            _ if is_result => written.push(json!({ "role": "user", "content": text })),
            _ => written.push(message),
        }
        follows_result = is_result;
    }
    if !functions.is_empty() {
        add_instructions(&mut written, &instructions(functions), place);
    }
    written
}

/// The messages with calls as text in `format`, for templates that write functions but no calls.
pub(crate) fn with_written_calls(mut messages: Vec<Value>, format: &ToolFormat) -> Vec<Value> {
    for message in &mut messages {
        let Some(fields) = message.as_object_mut() else {
            continue;
        };
        let Some(Value::Array(calls)) = fields.shift_remove("tool_calls") else {
            continue;
        };
        let calls = calls.iter().map(|call| &call["function"]);
        let calls = calls.map(|function| {
            let name = function["name"].as_str().unwrap_or_default();
            (name, arguments_of(&function["arguments"]))
        });
        let calls: Vec<(&str, Map<String, Value>)> = calls.collect();
        let calls: Vec<(&str, &Map<String, Value>)> = calls
            .iter()
            .map(|(name, arguments)| (*name, arguments))
            .collect();
        if calls.is_empty() {
            continue;
        }
        let mut text = text_of(message);
        if !text.is_empty() {
            text.push('\n');
        }
        text += &format.written(&calls);
        message["content"] = text.into();
    }
    messages
}

/// The arguments of a call, which may be JSON in a string.
fn arguments_of(arguments: &Value) -> Map<String, Value> {
    let read = match arguments {
        Value::String(text) => serde_json::from_str(text).unwrap_or_default(),
        arguments => arguments.clone(),
    };
    match read {
        Value::Object(arguments) => arguments,
        _ => Map::new(),
    }
}

/// The text of a message, with its parts joined.
pub(super) fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect()
        }
        _ => String::new(),
    }
}

fn add_instructions(messages: &mut Vec<Value>, instructions: &str, place: InstructionsPlace) {
    let has_role = |message: &Value, roles: &[&str]| {
        message["role"]
            .as_str()
            .is_some_and(|role| roles.contains(&role))
    };
    match place {
        InstructionsPlace::System => match messages.first_mut() {
            Some(first) if has_role(first, &SYSTEM_ROLES) => {
                first["content"] = [&*text_of(first), "\n\n", instructions].concat().into();
            }
            _ => messages.insert(0, json!({ "role": "system", "content": instructions })),
        },
        InstructionsPlace::FirstUser => {
            let mut messages_of_user = messages.iter_mut();
            match messages_of_user.find(|message| has_role(message, &["user"])) {
                Some(first) => {
                    first["content"] = [instructions, "\n\n", &*text_of(first)].concat().into();
                }
                None => messages.insert(0, json!({ "role": "user", "content": instructions })),
            }
        }
    }
}

/// The functions, and the instructions to call them in the built-in format.
fn instructions(functions: &[Value]) -> String {
    let functions: Vec<String> = functions.iter().map(written_json).collect();
    let call = BUILT_IN.joined(&[("NAME", "{\"PARAMETER\": VALUE}")]);
    format!(
        "You can call these functions:\n<tools>\n{}\n</tools>\n\n\
         To call one, write its name and its arguments as JSON in this form:\n{call}\n\
         To call several, write several blocks. Write nothing after the last block: the results follow between \
         <tool_response> and </tool_response>. If you need no function, answer without a block.",
        functions.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A conversation with two calls and their results.
    fn conversation() -> Vec<Value> {
        let call = |name: &str, arguments: &str| json!({ "id": "call_1", "type": "function", "function": { "name": name, "arguments": arguments } });
        vec![
            json!({ "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] }),
            json!({ "role": "assistant", "content": "I look.", "tool_calls": [call("f", "{\"x\":1}"), call("g", "")] }),
            json!({ "role": "tool", "tool_call_id": "call_1", "content": "7" }),
            json!({ "role": "tool", "tool_call_id": "call_2", "content": [{ "type": "text", "text": "8" }] }),
            json!({ "role": "user", "content": "And now?" }),
        ]
    }

    #[test]
    fn calls_and_results_become_text() {
        let calls = "I look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>\n\
                     <tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";
        let results = "<tool_response>\n7\n</tool_response>\n<tool_response>\n8\n</tool_response>\n\nAnd now?";
        let first = conversation()[0].clone();
        assert_eq!(
            rewrite(conversation(), &[], InstructionsPlace::System),
            [
                first,
                json!({ "role": "assistant", "content": calls }),
                json!({ "role": "user", "content": results }),
            ]
        );
        // Without text before the call.
        let message = json!({ "role": "assistant", "tool_calls": [
            { "id": "a", "type": "function", "function": { "name": "f", "arguments": { "x": 1 } } }] });
        let written = rewrite(vec![message], &[], InstructionsPlace::System);
        let text = written[0]["content"].as_str().unwrap();
        assert!(text.starts_with("<tool_call>\n{\"name\": \"f\""), "{text}");
    }

    #[test]
    fn instructions_are_part_of_a_message() {
        let user = json!({ "role": "user", "content": "?" });
        let functions = [json!({ "type": "function", "function": { "name": "f" } })];
        let written = |messages: Vec<Value>, place| {
            let messages = rewrite(messages, &functions, place);
            let list = messages.into_iter().map(|message| {
                let text = |name: &str| message[name].as_str().unwrap().to_owned();
                (text("role"), text("content"))
            });
            list.collect::<Vec<_>>()
        };
        let line = "{\"type\": \"function\", \"function\": {\"name\": \"f\"}}";
        let first_system = written(vec![user.clone()], InstructionsPlace::System);
        assert_eq!(
            (first_system.len(), &*first_system[0].0, &*first_system[1].1),
            (2, "system", "?")
        );
        assert!(first_system[0].1.contains(line), "{}", first_system[0].1);
        assert!(
            first_system[0]
                .1
                .contains("<tool_call>\n{\"name\": \"NAME\", ")
        );
        for role in SYSTEM_ROLES {
            let system = json!({ "role": role, "content": "Be brief." });
            let added = written(vec![system, user.clone()], InstructionsPlace::System);
            assert_eq!(
                added[0],
                (
                    role.to_owned(),
                    format!("Be brief.\n\n{}", first_system[0].1)
                )
            );
        }
        let first = written(vec![user], InstructionsPlace::FirstUser);
        assert_eq!(
            first,
            [("user".to_owned(), format!("{}\n\n?", first_system[0].1))]
        );
        let greeting = json!({ "role": "assistant", "content": "Hello" });
        let first = written(vec![greeting], InstructionsPlace::FirstUser);
        assert_eq!(first[0], ("user".to_owned(), first_system[0].1.clone()));
    }

    #[test]
    fn invalid_calls_do_not_fail() {
        for message in [
            json!({ "role": "assistant", "tool_calls": [] }),
            json!({ "role": "assistant", "tool_calls": [{}] }),
            json!({ "role": "assistant", "tool_calls": [{ "function": { "name": 1, "arguments": "[" } }] }),
            json!({ "role": "tool" }),
            json!([]),
        ] {
            assert_eq!(
                rewrite(vec![message], &[], InstructionsPlace::FirstUser).len(),
                1
            );
        }
    }
}
