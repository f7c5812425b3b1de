//! Functions whose parameters the model writes between tags.

use serde_json::{Value, json};

use super::entry::{CODER, GEMMA, HERMES, Server};

fn tool(parameters: Value, strict: bool) -> Value {
    json!([{ "type": "function", "function": { "name": "f", "parameters": parameters, "strict": strict } }])
}

/// A call of the function with these parameters: the arguments.
#[track_caller]
fn called(server: &Server, parameters: Value, fields: Value) -> Value {
    let mut fields = fields;
    fields["tools"] = tool(parameters, false);
    fields["tool_choice"] = "required".into();
    fields["parallel_tool_calls"] = false.into();
    fields["max_tokens"] = 600.into();
    let answer = server.answered(fields);
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
    let arguments = choice["message"]["tool_calls"][0]["function"]["arguments"].as_str();
    serde_json::from_str(arguments.unwrap()).unwrap()
}

#[test]
fn values_have_the_types_of_the_schema() {
    for template in [CODER, GEMMA] {
        check_types(&Server::new(template));
    }
}

fn check_types(server: &Server) {
    let parameters = json!({
        "type": "object",
        "properties": {
            "code": { "type": "string", "minLength": 2, "maxLength": 4 },
            "zip": { "enum": ["12345", "null"] },
            "count": { "type": "integer", "minimum": 10, "maximum": 99 },
            "place": { "type": "object", "properties": { "x": { "enum": [1, 2] } }, "required": ["x"], "additionalProperties": false },
            "flag": { "$ref": "#/$defs/flag" },
        },
        "required": ["code", "zip", "count", "place", "flag"],
        "$defs": { "flag": { "type": "boolean" } },
    });
    for seed in 0..6 {
        let arguments = called(
            server,
            parameters.clone(),
            json!({ "seed": seed, "temperature": 1.5 }),
        );
        let code = arguments["code"].as_str().unwrap();
        assert!((2..=4).contains(&code.chars().count()), "{arguments}");
        assert!(
            ["12345", "null"].contains(&arguments["zip"].as_str().unwrap()),
            "{arguments}"
        );
        assert!(
            (10..=99).contains(&arguments["count"].as_i64().unwrap()),
            "{arguments}"
        );
        assert!(
            [1, 2].contains(&arguments["place"]["x"].as_i64().unwrap()),
            "{arguments}"
        );
        assert!(arguments["flag"].is_boolean(), "{arguments}");
        assert_eq!(arguments.as_object().unwrap().len(), 5, "{arguments}");
    }
}

#[test]
fn keywords_of_free_texts_are_not_enforced() {
    let server = Server::new(CODER);
    let parameters = json!({ "properties": { "a": { "type": "string", "pattern": "^[0-9]+$" } } });
    let body =
        json!({ "model": "m", "messages": [{ "role": "user", "content": "?" }], "max_tokens": 1 });
    let ask = |strict: bool| {
        let fields = json!({ "tools": tool(parameters.clone(), strict) });
        server.post_warned("/v1/chat/completions", body.clone(), fields)
    };
    let (status, answer, warnings) = ask(false);
    assert_eq!(status, 200, "{answer}");
    let expected = "tools[0].function.parameters: not enforced: `pattern` at /properties/a/pattern is not supported";
    assert!(
        warnings.iter().any(|warning| warning.starts_with(expected)),
        "{warnings:?}"
    );
    let (status, answer, _) = ask(true);
    assert_eq!(status, 400, "{answer}");
    assert!(
        answer.contains("`pattern` at /properties/a/pattern"),
        "{answer}"
    );
    // It is for other formats.
    let hermes = Server::new(HERMES);
    let (param, _) =
        server.refused(json!({ "tools": tool(json!({ "properties": { "<a>": {} } }), false) }));
    assert_eq!(param, "tools[0].function.parameters");
    hermes.answered(
        json!({ "tools": tool(json!({ "properties": { "<a>": {} } }), false), "max_tokens": 1 }),
    );
    hermes.answered(json!({ "tools": tool(parameters, true), "max_tokens": 1 }));
}

#[test]
fn calls_are_written_again_by_the_template() {
    let server = Server::new(CODER);
    let call = json!([{ "id": "a", "type": "function", "function": { "name": "f", "arguments": "{\"a\": \"x\\ny\", \"b\": [1]}" } }]);
    let messages =
        json!([{ "role": "user", "content": "?" }, { "role": "assistant", "tool_calls": call }]);
    let answer = server.answered(json!({ "messages": messages, "max_tokens": 1 }));
    let written = "[user]?[assistant]<tool_call>\n<function=f>\n<parameter=a>\nx\ny\n</parameter>\n\
                   <parameter=b>\n[1]\n</parameter>\n</function>\n</tool_call>[assistant]";
    // One token per byte, after the end-of-text token.
    assert_eq!(answer["usage"]["prompt_tokens"], written.len() + 1);
}
