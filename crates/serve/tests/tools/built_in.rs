//! Functions with chat templates that do not support them.

use serde_json::{Value, json};

use super::entry::{HERMES, PLAIN, Server};
use super::{check_call, tools};

/// Rejects system messages, and roles that do not alternate, like Gemma 2.
const STRICT: &str = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}\
    {% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}\
    [{{ m.role }}]{{ m.content }}{% endfor %}[assistant]";

/// Writes functions in a format of no published model.
const UNSUPPORTED: &str = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}\
    {% if m.tool_calls %}CALL {{ m.tool_calls | tojson }}{% endif %}{{ '\n' }}{% endfor %}[assistant]";

/// Writes functions, but no calls, like Granite 3.
const WITHOUT_CALLS: &str = "{% if tools %}Write <|tool_call|> and a list: {{ tools | tojson }}{% endif %}\
    {% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}[assistant]";

/// The text of the prompt of a conversation.
fn prompt(server: &Server, fields: Value) -> String {
    let post = |path: &str, fields: Value| -> Value {
        let (status, body) = server.post(path, json!({ "model": "m" }), fields);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    };
    let tokens = post("/tokenize", fields)["tokens"].clone();
    let text = post("/detokenize", json!({ "tokens": tokens }))["prompt"].clone();
    text.as_str().unwrap().to_owned()
}

/// A question, the calls that the model answers with, and their results.
fn round(server: &Server, template: &str, choice: Value) -> Value {
    let user = json!({ "role": "user", "content": "Weather?" });
    let answer = server.answered(
        json!({ "messages": [user], "tools": tools(), "tool_choice": choice, "seed": 7,
        "max_tokens": 400, "parallel_tool_calls": false }),
    );
    let choice = &answer["choices"][0];
    assert_eq!(
        choice["finish_reason"], "tool_calls",
        "{template}: {answer}"
    );
    let message = choice["message"].clone();
    check_call(&message["tool_calls"][0]);
    let id = &message["tool_calls"][0]["id"];
    json!([user, message, { "role": "tool", "tool_call_id": id, "content": "7 °C" }])
}

#[test]
fn conversations_have_several_rounds() {
    for template in [PLAIN, STRICT, UNSUPPORTED, WITHOUT_CALLS] {
        let server = Server::new(template);
        let mut messages = round(&server, template, json!("required"));
        let fields = json!({ "messages": messages, "tools": tools(), "max_tokens": 2 });
        server.answered(fields);
        let named = json!({ "type": "function", "function": { "name": "get_weather" } });
        let other = round(&server, template, named);
        let call = &other[1]["tool_calls"][0]["function"];
        assert_eq!(call["name"], "get_weather", "{template}");
        // Roles alternate even if the user writes after a result.
        let more = messages.as_array_mut().unwrap();
        more.push(json!({ "role": "user", "content": "And now?" }));
        server.answered(json!({ "messages": messages, "tools": tools(), "max_tokens": 2 }));
    }
}

#[test]
fn functions_calls_and_results_are_text_of_messages() {
    let calls = json!([
        { "id": "a", "type": "function", "function": { "name": "now", "arguments": "{\"z\":1}" } },
        { "id": "b", "type": "function", "function": { "name": "now", "arguments": "" } },
    ]);
    let messages = json!([
        { "role": "system", "content": "Be brief." },
        { "role": "user", "content": "?" },
        { "role": "assistant", "content": null, "tool_calls": calls },
        { "role": "tool", "tool_call_id": "a", "content": "1" },
        { "role": "tool", "tool_call_id": "b", "content": "2" },
    ]);
    let rounds = "[user]?\n[assistant]<tool_call>\n{\"name\": \"now\", \"arguments\": {\"z\": 1}}\n</tool_call>\n\
                  <tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n\
                  [user]<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>\n[assistant]";
    for template in [PLAIN, UNSUPPORTED] {
        let server = Server::new(template);
        let text = prompt(&server, json!({ "messages": messages, "tools": tools() }));
        let rest = text.strip_prefix("[system]Be brief.\n\n").unwrap();
        let (instructions, rest) = rest.split_once("[user]").unwrap();
        assert!(
            instructions.contains("\"name\": \"get_weather\""),
            "{instructions}"
        );
        assert_eq!(format!("[user]{rest}"), rounds);
        // Without functions there are no instructions.
        let text = prompt(&server, json!({ "messages": messages }));
        assert_eq!(text, format!("[system]Be brief.\n{rounds}"));
        let text = prompt(
            &server,
            json!({ "messages": [{ "role": "user", "content": "?" }] }),
        );
        assert_eq!(text, "[user]?\n[assistant]");
    }
    // Templates that reject system messages.
    let server = Server::new(STRICT);
    let messages = json!([{ "role": "user", "content": [{ "type": "text", "text": "?" }] }]);
    let text = prompt(&server, json!({ "messages": messages, "tools": tools() }));
    assert!(text.starts_with("[user]You can call"), "{text}");
    assert!(text.ends_with("\n\n?[assistant]"), "{text}");
    // Templates that support tools are unaffected.
    let server = Server::new(HERMES);
    let text = prompt(&server, json!({ "messages": messages, "tools": tools() }));
    assert!(text.starts_with("{\"type\": \"function\""), "{text}");
}

#[test]
fn calls_are_text_if_the_template_writes_none() {
    let server = Server::new(WITHOUT_CALLS);
    let messages = round(&server, WITHOUT_CALLS, json!("required"));
    let call = &messages[1]["tool_calls"][0]["function"];
    let text = prompt(&server, json!({ "messages": messages, "tools": tools() }));
    let written = format!(
        "[assistant]<|tool_call|>[{{\"name\": {}, \"arguments\": {}}}]\n[tool]7 °C\n",
        call["name"],
        call["arguments"].as_str().unwrap()
    );
    assert!(text.contains(&written), "{text}\n{written}");
}

#[test]
fn a_model_without_template_has_no_conversations() {
    let server = Server::without_template();
    for fields in [json!({}), json!({ "tools": tools() })] {
        let (param, message) = server.refused(fields);
        assert_eq!(param, "model");
        assert!(message.contains("m has no chat template"), "{message}");
    }
}
