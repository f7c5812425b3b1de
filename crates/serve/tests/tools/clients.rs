//! Requests as clients of OpenAI's API write them: with nulls and defaults, with answers that are sent back, and with
//! schemas that generators wrote.

use serde_json::{Value, json};

use super::entry::{HERMES, Server, usual};
use super::responses::flat;
use super::tools;
use crate::tables::check_table;

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";

/// A request to `path` with these fields, for one token.
fn ask(server: &Server, path: &str, fields: Value) -> (u16, String, Vec<String>) {
    let mut body = usual(path);
    let limit = match path {
        RESPONSES => "max_output_tokens",
        _ => "max_tokens",
    };
    if path != "/v1/embeddings" {
        body[limit] = 1.into();
    }
    server.post_warned(path, body, fields)
}

#[track_caller]
fn accepted(server: &Server, path: &str, fields: Value) -> Vec<String> {
    let (status, body, warnings) = ask(server, path, fields.clone());
    assert_eq!(status, 200, "{path} {fields}: {body}");
    warnings
}

#[track_caller]
fn refused(server: &Server, path: &str, fields: Value) -> (String, String) {
    let (status, body, _) = ask(server, path, fields.clone());
    assert_eq!(status, 400, "{path} {fields}: {body}");
    let error = &serde_json::from_str::<Value>(&body).unwrap()["error"];
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    (text("param"), text("message"))
}

#[test]
fn requests_are_accepted_or_refused_by_field() {
    let server = Server::new(HERMES);
    let tools = tools();
    let flat = Value::from(flat()).to_string();
    check_table("tools/requests", |row| {
        let row = row.replace("TOOLS", &tools.to_string());
        let row = row.replace("FLAT", &flat);
        let (path, fields) = row.split_once(' ').unwrap();
        let (status, body, _) = ask(&server, path, serde_json::from_str(fields).unwrap());
        if status == 200 {
            return "200".to_owned();
        }
        let error = &serde_json::from_str::<Value>(&body).unwrap()["error"];
        let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        format!("{status} {}\n{}", text("param"), text("message"))
    });
}

#[test]
fn data_of_the_client_stays_as_it_is() {
    let server = Server::new(HERMES);
    let prompt = |arguments: &str, parameters: Value| {
        let call = json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": arguments } });
        let answer = server.answered(json!({
            "messages": [{ "role": "assistant", "tool_calls": [call] }, { "role": "user", "content": "?" }],
            "tools": [{ "type": "function", "function": { "name": "f", "parameters": parameters } }],
            "max_tokens": 1,
        }));
        answer["usage"]["prompt_tokens"].as_u64().unwrap() as usize
    };
    let empty = prompt("{}", json!({ "type": "object" }));
    let with_null = prompt(r#"{"a": null}"#, json!({ "type": "object" }));
    assert_eq!(with_null - empty, r#""a": null"#.len());
    let with_default = prompt("{}", json!({ "type": "object", "default": null }));
    assert_eq!(with_default - empty, r#", "default": null"#.len());
    let with_float = prompt("{}", json!({ "type": "object", "default": 5.0 }));
    assert_eq!(with_float - empty, r#", "default": 5.0"#.len());
    let (_, body, _) = ask(&server, RESPONSES, json!({ "metadata": { "a": null } }));
    assert!(body.contains(r#""metadata":{"a":null}"#), "{body}");
}

#[test]
fn refusal_is_the_text_of_its_message() {
    let server = Server::new(HERMES);
    let user = json!({ "role": "user", "content": "hi" });
    let tokens = |message: Value| {
        let answer = server.answered(json!({ "messages": [user, message, user], "max_tokens": 1 }));
        answer["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    let refusal = tokens(json!({ "role": "assistant", "content": null, "refusal": "no" }));
    assert_eq!(
        refusal,
        tokens(json!({ "role": "assistant", "content": "no" }))
    );
}

#[test]
fn a_json_object_may_have_a_schema() {
    let server = Server::new(HERMES);
    let schema = json!({ "type": "object", "properties": { "n": { "enum": [1, 2] } }, "required": ["n"], "additionalProperties": false });
    let format = json!({ "type": "json_object", "schema": schema });
    let answer = server.answered(json!({ "response_format": format, "max_tokens": 60 }));
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
    let object: Value = serde_json::from_str(text).unwrap();
    assert!([1, 2].contains(&object["n"].as_i64().unwrap()), "{text}");
}

fn tool(name: &str, parameters: Value, strict: Option<bool>) -> Value {
    json!({ "type": "function", "function": { "name": name, "parameters": parameters, "strict": strict } })
}

#[test]
fn unsupported_keywords_loosen_a_function_unless_it_is_strict() {
    let server = Server::new(HERMES);
    let parameters = json!({ "type": "object", "properties": {
        "tags": { "type": "array", "items": { "enum": ["é", "b"] }, "maxItems": 2, "uniqueItems": true } }, "required": ["tags"], "additionalProperties": false });
    let plain = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let issue = "`uniqueItems` at /properties/tags/uniqueItems is not supported";
    for (strict, path) in [
        (None, CHAT),
        (Some(false), CHAT),
        (None, RESPONSES),
        (Some(false), RESPONSES),
    ] {
        let tools = [
            tool("g", plain.clone(), None),
            tool("f", parameters.clone(), strict),
        ];
        let fields = match path {
            CHAT => {
                json!({ "tools": tools, "tool_choice": { "type": "function", "function": { "name": "f" } }, "max_tokens": 200, "temperature": 1 })
            }
            _ => {
                let flat: Vec<Value> = tools
                    .iter()
                    .map(|tool| {
                        let mut flat = tool["function"].clone();
                        flat["type"] = "function".into();
                        flat
                    })
                    .collect();
                json!({ "tools": flat, "tool_choice": { "type": "function", "name": "f" }, "max_output_tokens": 200 })
            }
        };
        let (status, body, warnings) = ask(&server, path, fields);
        assert_eq!(status, 200, "{body}");
        assert_eq!(
            warnings,
            [format!(
                "tools[1].function.parameters: not enforced: {issue}"
            )]
        );
        let answer: Value = serde_json::from_str(&body).unwrap();
        let arguments = match path {
            CHAT => &answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"],
            _ => &answer["output"][0]["arguments"],
        };
        // The rest of the schema is enforced.
        let arguments: Value = serde_json::from_str(arguments.as_str().unwrap()).unwrap();
        assert!(
            arguments["tags"].as_array().unwrap().len() <= 2,
            "{arguments}"
        );
    }
    let strict =
        json!({ "tools": [tool("g", plain, None), tool("f", parameters.clone(), Some(true))] });
    let (param, message) = refused(&server, CHAT, strict);
    assert_eq!(param, "tools[1].function.parameters");
    assert_eq!(message, format!("{param}: {issue}"));
    // A schema of the answer itself is always enforced.
    let format =
        json!({ "type": "json_schema", "json_schema": { "name": "a", "schema": parameters } });
    let (param, message) = refused(&server, CHAT, json!({ "response_format": format }));
    assert_eq!(param, "response_format");
    assert!(message.ends_with(issue), "{message}");
    let (param, message) = refused(
        &server,
        CHAT,
        json!({ "structured_outputs": { "json": parameters } }),
    );
    assert_eq!(param, "structured_outputs");
    assert!(message.ends_with(issue), "{message}");
}

#[test]
fn schemas_that_do_not_compile_loosen_a_function_completely() {
    let server = Server::new(HERMES);
    // Both patterns match "ab".
    let parameters =
        json!({ "patternProperties": { "a": { "type": "integer" }, "b": { "type": "string" } } });
    let tools = [
        tool("f", json!({ "properties": {} }), None),
        tool("g", parameters.clone(), None),
    ];
    let warnings = accepted(
        &server,
        CHAT,
        json!({ "tools": tools, "tool_choice": "required" }),
    );
    let issue = "`patternProperties` whose patterns may match the same name are not supported";
    assert_eq!(
        warnings,
        [format!(
            "tools[1].function.parameters: not enforced: {issue}"
        )]
    );
    let (param, message) = refused(
        &server,
        CHAT,
        json!({ "tools": [tool("g", parameters, Some(true))] }),
    );
    assert_eq!(message, format!("{param}: {issue}"));
    assert_eq!(param, "tools[0].function.parameters");
}
