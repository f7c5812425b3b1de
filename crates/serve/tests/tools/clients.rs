//! Requests as clients of OpenAI's API write them: with nulls and defaults, with answers that are sent back, and with
//! schemas that generators wrote.

use serde_json::{Value, json};

use super::entry::{HERMES, Server};

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";

/// A request to `path` with these fields, for one token.
fn ask(server: &Server, path: &str, fields: Value) -> (u16, String, Vec<String>) {
    let body = match path {
        CHAT => json!({ "messages": [{ "role": "user", "content": "?" }], "max_tokens": 1 }),
        RESPONSES => json!({ "input": "?", "max_output_tokens": 1 }),
        "/v1/completions" => json!({ "prompt": "?", "max_tokens": 1 }),
        "/api/play" => json!({ "prompt": "?", "max_tokens": 1 }),
        _ => json!({ "input": "?" }),
    };
    let mut body = body;
    body["model"] = "m".into();
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
fn null_is_a_missing_field_at_every_level() {
    let server = Server::new(HERMES);
    let shared = [
        "temperature",
        "top_p",
        "stop",
        "seed",
        "stream",
        "stream_options",
        "logit_bias",
        "user",
        "any_name",
    ];
    for (path, fields) in [
        (
            CHAT,
            &[
                "functions",
                "function_call",
                "audio",
                "modalities",
                "prediction",
                "reasoning_effort",
                "service_tier",
                "web_search_options",
                "tools",
                "tool_choice",
                "response_format",
                "n",
                "store",
                "metadata",
                "parallel_tool_calls",
            ][..],
        ),
        (
            RESPONSES,
            &[
                "reasoning",
                "max_tool_calls",
                "tools",
                "text",
                "include",
                "conversation",
                "previous_response_id",
                "prompt",
                "store",
                "background",
                "truncation",
                "instructions",
            ],
        ),
        (
            "/v1/completions",
            &["suffix", "best_of", "echo", "logprobs", "n"],
        ),
        ("/api/play", &["continued", "top_logprobs", "messages"]),
    ] {
        for field in fields.iter().chain(&shared) {
            accepted(&server, path, json!({ (*field): null }));
        }
    }
    for field in [
        "encoding_format",
        "dimensions",
        "user",
        "truncate",
        "any_name",
    ] {
        accepted(&server, "/v1/embeddings", json!({ field: null }));
    }
    for fields in [
        json!({ "stream_options": { "include_usage": null, "include_obfuscation": null, "other": null } }),
        json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": "a", "cache": null }], "name": null }] }),
        json!({ "messages": [{ "role": "assistant", "content": "a", "refusal": null, "annotations": null, "audio": null,
            "function_call": null, "tool_calls": null, "other": null }, { "role": "user", "content": "a" }] }),
        json!({ "tools": [{ "type": "function", "function": { "name": "f", "description": null, "parameters": null, "strict": null }, "other": null }] }),
        json!({ "response_format": { "type": "text", "json_schema": null } }),
        json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "a", "strict": null, "description": null, "schema": {
            "properties": { "a": { "enum": [null] }, "b": { "const": null }, "c": { "type": "string", "default": null, "minLength": null } } } } } }),
        json!({ "structured_outputs": { "json": null, "regex": "a", "choice": null } }),
    ] {
        accepted(&server, CHAT, fields);
    }
    for fields in [
        json!({ "text": { "format": null, "verbosity": null } }),
        json!({ "reasoning": { "effort": null, "summary": null } }),
        json!({ "tools": [{ "type": "function", "name": "f", "parameters": null, "strict": null, "output_schema": null }] }),
        json!({ "input": [{ "role": "user", "content": "a", "id": null, "status": null, "type": null }] }),
    ] {
        accepted(&server, RESPONSES, fields);
    }
    // A required field that is null is missing.
    let (_, message) = refused(&server, CHAT, json!({ "messages": null }));
    assert!(message.contains("missing field `messages`"), "{message}");
    let (param, _) = refused(&server, CHAT, json!({ "messages": [null] }));
    assert_eq!(param, "messages[0]");
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
fn defaults_of_other_servers_are_missing_fields() {
    let server = Server::new(HERMES);
    for (path, fields) in [
        (
            CHAT,
            json!({ "n": 1, "store": false, "parallel_tool_calls": true, "logprobs": false, "top_logprobs": 0, "presence_penalty": 0,
            "frequency_penalty": 0, "modalities": ["text"], "service_tier": "auto", "tool_choice": "auto", "reasoning_effort": "medium",
            "verbosity": "medium", "function_call": "none", "logit_bias": {}, "tools": [], "response_format": { "type": "text" },
            "stream_options": { "include_usage": false, "include_obfuscation": true } }),
        ),
        (CHAT, json!({ "tool_choice": "none" })),
        (
            "/v1/completions",
            json!({ "best_of": 1, "echo": false, "n": 1, "presence_penalty": 0 }),
        ),
        (
            RESPONSES,
            json!({ "store": true, "background": false, "truncation": "disabled", "top_logprobs": 0, "tool_choice": "auto",
            "parallel_tool_calls": true, "service_tier": "auto", "reasoning": { "effort": "medium" }, "metadata": {}, "include": [],
            "text": { "format": { "type": "text" }, "verbosity": "medium" } }),
        ),
        (
            RESPONSES,
            json!({ "tools": [{ "type": "function", "name": "f", "defer_loading": false }] }),
        ),
        ("/v1/embeddings", json!({ "encoding_format": "float" })),
    ] {
        accepted(&server, path, fields);
    }
    for (path, fields, param, rule) in [
        (
            CHAT,
            json!({ "service_tier": "flex" }),
            "service_tier",
            "not supported, except with its default \"auto\"",
        ),
        (
            CHAT,
            json!({ "modalities": ["text", "audio"] }),
            "modalities",
            "not supported, except with its default [\"text\"]",
        ),
        (
            CHAT,
            json!({ "function_call": { "name": "f" } }),
            "function_call",
            "not supported",
        ),
        (CHAT, json!({ "best_of": 1 }), "best_of", "not supported"),
        (
            "/v1/completions",
            json!({ "best_of": 3 }),
            "best_of",
            "not supported, except with its default 1",
        ),
        (
            "/v1/completions",
            json!({ "suffix": "" }),
            "suffix",
            "not supported",
        ),
        (
            RESPONSES,
            json!({ "reasoning": { "effort": "high" } }),
            "reasoning",
            "not supported",
        ),
        (
            RESPONSES,
            json!({ "truncation": "auto" }),
            "truncation",
            "unknown variant",
        ),
        (
            CHAT,
            json!({ "top_logprobs": 1 }),
            "top_logprobs",
            "needs \"logprobs\": true",
        ),
    ] {
        let (found, message) = refused(&server, path, fields);
        assert_eq!(found, param, "{message}");
        assert!(message.contains(rule), "{message}");
    }
}

#[test]
fn misspelt_fields_are_refused_with_the_nearest_name() {
    let server = Server::new(HERMES);
    for (path, fields, param, nearest) in [
        (
            CHAT,
            json!({ "temprature": 1 }),
            "temprature",
            "temperature",
        ),
        (CHAT, json!({ "max_token": 1 }), "max_token", "max_tokens"),
        (
            CHAT,
            json!({ "stream_options": { "include_usge": true } }),
            "stream_options.include_usge",
            "include_usage",
        ),
        (
            CHAT,
            json!({ "messages": [{ "role": "user", "contnet": "a" }] }),
            "messages[0].contnet",
            "content",
        ),
        (
            CHAT,
            json!({ "tools": [{ "type": "function", "function": { "name": "f", "paramters": {} } }] }),
            "tools[0].function.paramters",
            "parameters",
        ),
        (
            CHAT,
            json!({ "response_format": { "type": "json_objct" } }),
            "response_format",
            "json_object",
        ),
        (
            RESPONSES,
            json!({ "instruction": "a" }),
            "instruction",
            "instructions",
        ),
        (
            "/v1/embeddings",
            json!({ "dimension": 8 }),
            "dimension",
            "dimensions",
        ),
    ] {
        let (found, message) = refused(&server, path, fields);
        let end = format!("did you mean {nearest}?");
        assert!(
            message.ends_with(&end) && param.starts_with(&found),
            "{found}: {message}"
        );
    }
}

#[test]
fn answers_are_accepted_as_part_of_the_next_conversation() {
    let server = Server::new(HERMES);
    let user = json!({ "role": "user", "content": "hi" });
    let call = json!({ "id": "c1", "index": 0, "type": "function", "function": { "name": "f", "arguments": "{}" } });
    for echoed in [
        json!([{ "role": "assistant", "content": "yo", "refusal": null, "annotations": [], "audio": null, "function_call": null }]),
        json!([{ "role": "assistant", "content": "yo", "reasoning_content": "because", "logprobs": null, "tool_calls": [] }]),
        json!([{ "role": "assistant", "content": "yo", "annotations": [{ "type": "url_citation", "url_citation": { "url": "a" } }], "logprobs": { "content": [] } }]),
        json!([{ "role": "assistant", "content": "", "tool_calls": [call] }, { "role": "tool", "tool_call_id": "c1", "content": "3" }]),
    ] {
        let messages: Vec<&Value> = [&user]
            .into_iter()
            .chain(echoed.as_array().unwrap())
            .chain([&user])
            .collect();
        accepted(&server, CHAT, json!({ "messages": messages }));
    }
    // A refusal is the text of its message.
    let tokens = |message: Value| {
        let answer = server.answered(json!({ "messages": [user, message, user], "max_tokens": 1 }));
        answer["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    let refusal = tokens(json!({ "role": "assistant", "content": null, "refusal": "no" }));
    assert_eq!(
        refusal,
        tokens(json!({ "role": "assistant", "content": "no" }))
    );
    let items = json!([
        { "role": "user", "content": "hi" },
        { "type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "phase": "final_answer",
          "content": [{ "type": "output_text", "text": "yo", "annotations": [], "logprobs": [] }, { "type": "refusal", "refusal": "no" }] },
        { "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": null },
        { "type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}", "status": "completed", "namespace": null },
        { "type": "function_call_output", "id": null, "call_id": "c1", "output": "3", "status": null },
    ]);
    accepted(&server, RESPONSES, json!({ "input": items }));
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
