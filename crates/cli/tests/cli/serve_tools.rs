//! Function calling on the real server, which compiles grammars in a sandbox first.

use serde_json::{Value, json};

use super::serve::with_model;

const TEMPLATE: &str = "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}{% for m in messages %}{{ m.content }}\n\
    {% endfor %}{# <tool_call> #}";

#[test]
fn required_calls_are_valid_and_hostile_schemas_are_rejected() {
    let sandbox = with_model(2048, &[1]);
    sandbox.write("tools.jinja", TEMPLATE);
    let server = sandbox.serve("serve run --chat-template tools.jinja");
    let ask = |parameters: Value| {
        server.post(
            "/v1/chat/completions",
            &json!({
                "model": "run",
                "messages": [{ "role": "user", "content": "?" }],
                "tools": [{ "type": "function", "function": { "name": "f", "parameters": parameters } }],
                "tool_choice": "required",
                "parallel_tool_calls": false,
            }),
        )
    };
    let numbers =
        json!({ "type": "array", "items": { "enum": [1, 2] }, "minItems": 2, "maxItems": 3 });
    let schema = json!({ "properties": { "n": { "$ref": "#/$defs/numbers" } }, "required": ["n"],
        "additionalProperties": false, "$defs": { "numbers": numbers } });
    let answer = ask(schema).expect(200);
    let call = &answer.json()["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!(call["name"], "f");
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    let found = arguments["n"].as_array().unwrap();
    assert!((2..=3).contains(&found.len()), "{arguments}");
    for hostile in [
        json!({ "properties": { "a": { "$ref": "https://example.com/schema" } }, "required": ["a"] }),
        json!({ "properties": { "a": { "enum": vec!["x".repeat(1000); 300] } }, "required": ["a"] }),
    ] {
        let answer = ask(hostile).expect(400);
        let param = "tools[0].function.parameters";
        assert_eq!(answer.json()["error"]["param"], param, "{}", answer.body);
    }
}
