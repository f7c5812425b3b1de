//! Every field of OpenAI's published schemas is supported, or refused with a reason.

use serde_json::{Map, Value, json};

use super::entry::{HERMES, Server};
use super::fields::{CHAT, RESPONSES};

/// The fields that OpenAI publishes, in lines below the path of their endpoint.
const PUBLISHED: &str = include_str!("../published_fields.txt");

/// A valid object for each object of the published schemas.
fn object(path: &str) -> Value {
    match path {
        "messages[]" => {
            json!({ "role": "assistant", "content": "a", "tool_calls": [object("messages[].tool_calls[]")] })
        }
        "messages[].content[]" => json!({ "type": "text", "text": "a" }),
        "messages[].tool_calls[]" => {
            json!({ "id": "c", "type": "function", "function": object("messages[].tool_calls[].function") })
        }
        "messages[].tool_calls[].function" => json!({ "name": "f", "arguments": "{}" }),
        "response_format" => json!({ "type": "json_schema", "json_schema": { "name": "a" } }),
        "response_format.json_schema" => json!({ "name": "a" }),
        "tools[]" => json!({ "type": "function", "function": { "name": "f" } }),
        "tools[].function" => json!({ "name": "f" }),
        "input[]" => json!({ "role": "assistant", "content": "a" }),
        "input[].content[]" => json!({ "type": "output_text", "text": "a" }),
        "input[function_call]" => {
            json!({ "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}" })
        }
        "input[function_call_output]" => {
            json!({ "type": "function_call_output", "call_id": "c", "output": "a" })
        }
        "input[reasoning]" => json!({ "type": "reasoning", "id": "r", "summary": [] }),
        "text.format" => json!({ "type": "json_schema", "name": "a", "schema": {} }),
        "responses tools[]" => json!({ "type": "function", "name": "f" }),
        _ => json!({}),
    }
}

/// Puts `value` at a path, within valid objects.
fn at(endpoint: &str, path: &str, value: Value) -> Map<String, Value> {
    let mut value = value;
    let mut path = path;
    while let Some((outer, name)) = path.rsplit_once('.') {
        let place = match (endpoint, outer) {
            (RESPONSES, "tools[]") => "responses tools[]",
            _ => outer,
        };
        let mut object = object(place);
        object[name.trim_end_matches("[]")] = value;
        value = match outer.ends_with(']') {
            true => json!([object]),
            false => object,
        };
        path = outer;
    }
    let name = path.split('[').next().unwrap();
    Map::from_iter([(name.to_owned(), value)])
}

#[test]
fn every_published_field_is_supported_or_refused_with_a_reason() {
    let server = Server::new(HERMES);
    let (mut endpoint, mut count) = ("", 0);
    for line in PUBLISHED
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        if line.starts_with('/') {
            endpoint = line;
            continue;
        }
        count += 1;
        // No field has this value.
        let fields = at(endpoint, line, json!([["strange"]]));
        let (status, body) = server.send(endpoint, fields.into());
        let message = body["error"]["message"].as_str().unwrap_or_default();
        let is_known =
            !message.contains("field is not supported") && !message.contains("unknown field");
        assert!(
            [200, 400, 404].contains(&status) && is_known,
            "{endpoint} {line}: {body}"
        );
    }
    assert!(count > 150, "{count}");
    // The check finds a field that the server does not know.
    for path in [
        "messages[].tool_calls[].unheard",
        "tools[].function.unheard",
        "stream_options.unheard",
        "unheard",
    ] {
        let fields = at(CHAT, path, json!(1));
        let (_, message) = server.refused_at(CHAT, fields.into());
        assert!(
            message.contains("unheard") && message.contains("field"),
            "{path}: {message}"
        );
    }
}
