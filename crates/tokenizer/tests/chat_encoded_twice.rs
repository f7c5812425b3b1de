//! Values that are JSON in a text: they have the ids of the decoded values, in training and in prompts, by every template.

use std::fs;
use std::path::Path;

use emberlm_tokenizer::Tokenizer;
use emberlm_tokenizer::chat::{ChatEncoder, ChatTemplate};
use serde_json::{Value, json};

use crate::tables::check_table;

/// A template that shows all fields.
const SHOWS_ALL: &str = "{% if tools %}{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}{% endif %}{{ documents | tojson }}{{ style | tojson }}\
    {% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}{% for call in m.tool_calls or [] %}{{ call.function.name }}\
    ({{ call.function.arguments | tojson }}){% endfor %}{% if m.function_call %}{{ m.function_call.name }}\
    ({{ m.function_call.arguments | tojson }}){% endif %}<|im_end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// Every built-in template, those of the fixtures, and [`SHOWS_ALL`].
fn encoders() -> Vec<ChatEncoder> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/chat");
    let tokenizer = Tokenizer::from_file(fixtures.join("tokenizer.json")).unwrap();
    let files = fs::read_dir(fixtures.join("templates")).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    let files = files
        .iter()
        .map(|path| ChatTemplate::from_path(path, None).unwrap());
    let all = [
        ChatTemplate::chatml().unwrap(),
        ChatTemplate::llama3().unwrap(),
        ChatTemplate::parse("all", SHOWS_ALL).unwrap(),
    ];
    let tokens = [("bos_token", "<s>"), ("eos_token", "</s>")];
    let tokens = tokens.map(|(name, token)| (name.to_owned(), token.to_owned()));
    let templates = all.into_iter().chain(files);
    let encoders = templates.map(|template| {
        ChatEncoder::new(template.with_tokens(tokens.clone()), &tokenizer).with_document_start()
    });
    let encoders: Vec<_> = encoders.collect();
    assert!(encoders.len() >= 9);
    encoders
}

/// A record with decoded values.
fn record() -> Value {
    let call = |arguments: Value| json!([{ "id": "a", "type": "function", "function": { "name": "weather", "arguments": arguments } }]);
    json!({
        "messages": [
            { "role": "user", "content": "Weather in Köln? \"now\"" },
            { "role": "assistant", "content": "", "tool_calls": call(json!({ "city": "Köln", "at": [1.5, null] })) },
            { "role": "tool", "content": "{\"°C\": 7}" },
            { "role": "assistant", "content": "7", "tool_calls": call(json!({})) },
            { "role": "assistant", "content": "8", "function_call": { "name": "f", "arguments": { "x": 1 } } },
        ],
        "tools": [
            { "type": "function", "function": { "parameters": { "type": "object", "b": 1 }, "name": "weather" } },
            { "name": "flat", "parameters": { "type": "object" } },
        ],
        "documents": [{ "title": "a" }],
        "chat_template_kwargs": { "style": "plain", "date": "today" },
    })
}

/// Encodes the value at a JSON pointer as a text.
fn encode(record: &mut Value, pointer: &str) {
    let value = record.pointer_mut(pointer).unwrap();
    *value = Value::String(value.to_string());
}

/// Records whose ids are those of [`record`].
fn encoded() -> Vec<Value> {
    let calls = "/messages/1/tool_calls";
    let arguments = &format!("{calls}/0/function/arguments")[..];
    let function = &format!("{calls}/0/function")[..];
    let call = &format!("{calls}/0")[..];
    // In this order, outer values include the encoded inner ones.
    let groups: [&[&str]; 16] = [
        &["/tools"],
        &["/tools/0"],
        &["/tools/0/function/parameters"],
        &["/tools/0/function/parameters", "/tools/0/function"],
        &["/tools/1/parameters", "/tools/1", "/tools"],
        &["/documents"],
        &["/chat_template_kwargs"],
        &["/messages"],
        &["/messages/2", "/messages/0"],
        &[calls],
        &[call],
        &[function],
        &[arguments],
        &[arguments, function, call, calls, "/messages/1", "/messages"],
        &["/messages/4/function_call"],
        &["/messages/4/function_call/arguments"],
    ];
    let records = groups.map(|pointers| {
        let mut record = record();
        pointers
            .iter()
            .for_each(|pointer| encode(&mut record, pointer));
        record
    });
    let mut records = records.to_vec();
    let mut change = |change: fn(&mut Value)| {
        let mut changed = record();
        change(&mut changed);
        records.push(changed);
    };
    // An empty text has no arguments; `strict` and null fields are not for the template.
    change(|record| record["messages"][3]["tool_calls"][0]["function"]["arguments"] = json!(""));
    change(|record| record["messages"][2]["content"] = json!({ "°C": 7 }));
    change(|record| record["tools"][0]["function"]["strict"] = json!(true));
    change(|record| record["tools"][0]["function"]["description"] = Value::Null);
    records
}

#[test]
fn encoded_values_have_the_ids_of_decoded_ones() {
    for encoder in encoders() {
        let name = encoder.template().name().to_owned();
        let ids = |record: &Value| {
            let record = record.to_string();
            let tokens = encoder.encode(&record).map_err(|error| error.to_string());
            let prompt = encoder.prompt(&record).map_err(|error| error.to_string());
            (tokens, prompt)
        };
        let expected = ids(&record());
        if name == "all" {
            assert!(expected.0.is_ok() && expected.1.is_ok(), "{expected:?}");
        }
        for record in encoded() {
            assert_eq!(ids(&record), expected, "{name}: {record}");
        }
    }
}

/// The ids of training begin with those of the prompt for an answer, whichever form the record has.
#[test]
fn training_and_prompts_have_the_same_ids() {
    for encoder in encoders() {
        let name = encoder.template().name().to_owned();
        for record in [record()].into_iter().chain(encoded()) {
            let mut record = record;
            if let Some(list) = record["messages"].as_str() {
                record["messages"] = serde_json::from_str(list).unwrap();
            }
            let messages = record["messages"].as_array().unwrap().clone();
            for (number, _) in messages.iter().enumerate().skip(1).step_by(2) {
                record["messages"] = json!(messages[..number]);
                let Ok(prompt) = encoder.prompt(&record.to_string()) else {
                    continue;
                };
                record["messages"] = json!(messages[..=number]);
                let trained = encoder.encode_documents(&[&record.to_string()]).pop();
                let Some(Ok(trained)) = trained else {
                    continue;
                };
                assert_eq!(trained.ids[..prompt.len()], prompt, "{name}: {record}");
                assert!(
                    trained.learnt[prompt.len()..].contains(&true),
                    "{name}: {record}"
                );
            }
        }
    }
}

#[test]
fn lists_of_messages_are_decoded_where_texts_are_allowed() {
    let messages = json!([{ "role": "user", "content": "a" }]);
    let answer = json!([{ "role": "assistant", "content": "b" }]);
    let encoder = &encoders()[0];
    let ids = |record: Value| encoder.encode(&record.to_string());
    let expected = ids(json!({ "prompt": messages, "completion": answer })).unwrap();
    let texts = json!({ "prompt": messages.to_string(), "completion": answer.to_string() });
    assert_eq!(ids(texts).unwrap(), expected);
    // Other texts stay texts.
    for text in [
        "[]",
        "[1]",
        "[{\"a\": 1}]",
        "[\"role\"]",
        "[{",
        "{}",
        "[{'a': 1}]",
    ] {
        let tokens = ids(json!({ "prompt": text, "completion": text })).unwrap();
        let plain = ids(json!({ "prompt": "", "completion": format!("{text}{text}") })).unwrap();
        assert_eq!(tokens.ids, plain.ids, "{text}");
    }
}

#[test]
fn texts_that_are_not_json_are_errors_with_the_field() {
    let encoder = &encoders()[2];
    check_table("chat_encoded_twice", |row| {
        let (pointer, text) = row.split_once(' ').unwrap();
        let mut record = record();
        *record.pointer_mut(pointer).unwrap() = serde_json::from_str(text).unwrap();
        encoder.encode(&record.to_string()).unwrap_err().to_string()
    });
    let record = json!({ "prompt": "[{'role': 'user', 'content': 'a'}]", "completion": "b" });
    let error = encoder.encode(&record.to_string()).unwrap_err().to_string();
    assert!(
        error.starts_with("`prompt` is a list of messages as Python prints it"),
        "{error}"
    );
}
