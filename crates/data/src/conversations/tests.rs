//! Tests of the forms of conversations.

use super::*;
use crate::tables::check_table;

fn converted(json: &str) -> Value {
    serde_json::from_str(&to_example(json).unwrap()).unwrap()
}

fn refusal(json: &str) -> String {
    to_example(json).unwrap_err().to_string()
}

#[test]
fn every_form_becomes_messages() {
    let expected = json!({"messages": [
        {"role": "system", "content": "s"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
    ]});
    for record in [
        r#"{"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}"#,
        r#"{"conversations": [{"role": "system", "content": "s"}, {"role": "User", "content": "a"}, {"role": "chatgpt", "content": "b"}]}"#,
        r#"{"conversation": [{"from": "human", "value": "a"}, {"from": "bard", "value": "b"}], "system": "s"}"#,
        r#"{"messages": [{"from": "system", "value": "s"}, {"from": "user", "value": "a"}, {"from": "model", "value": "b"}]}"#,
        r#"{"conversations": "[{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", \"value\": \"b\"}]", "system": "s"}"#,
        r#"{"conversations":{"from":["system","human","gpt"],"value":["s","a","b"]}}"#,
        r#"{"messages":{"role":["system","user","assistant"],"content":["s","a","b"]}}"#,
        r#"{"instruction": "a", "input": "", "output": "b", "system": "s"}"#,
        r#"{"instruction": "a", "input": null, "output": "b", "system": "s", "history": []}"#,
        r#"{"question": "a", "answer": "b", "system": "s", "messages": null}"#,
    ] {
        assert_eq!(converted(record), expected, "{record}");
    }
    let alpaca = r#"{"instruction": "a", "input": "b", "output": "c", "history": [["d", "e"]]}"#;
    let contents = [
        ("user", "d"),
        ("assistant", "e"),
        ("user", "a\nb"),
        ("assistant", "c"),
    ];
    let messages = contents.map(|(role, content)| json!({"role": role, "content": content}));
    assert_eq!(converted(alpaca), json!({"messages": messages}));
}

#[test]
fn calls_of_tools_are_messages_of_the_assistant() {
    let record = r#"{"conversations": [
        {"from": "human", "value": "a"}, {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"},
        {"from": "observation", "value": "2"}, {"from": "gpt", "value": "b", "weight": 0}], "tools": "[]"}"#;
    let call = json!({"type": "function", "function": {"name": "f", "arguments": {"x": 1}}});
    let expected = json!({"tools": [], "messages": [
        {"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "2"},
        {"role": "assistant", "content": "b", "weight": 0},
    ]});
    assert_eq!(converted(record), expected);
    let text = r#"{"conversations": [{"from": "function_call", "value": "f(1)"}]}"#;
    assert!(refusal(text).starts_with("`conversations[0]` must be the JSON of a call"));
}

#[test]
fn records_in_rendered_forms_are_unchanged() {
    for record in [
        r#"{"messages": [{"role": "human", "content": "\u0061"}]}"#,
        r#"{"prompt": "from \"from\"", "completion": "b", "instruction": "c"}"#,
        r#"{"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]}"#,
        "{\"messages\": ",
        "[1]",
    ] {
        assert_eq!(to_example(record).as_deref(), Ok(record));
    }
}

#[test]
fn records_without_a_form_are_errors() {
    check_table("records/conversations", refusal);
}
