//! Fields of OpenAI's API with several names or forms, and additions of vLLM and llama.cpp.

use serde_json::{Value, json};

use super::entry::{HERMES, Server};
use super::tools;

pub const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
pub const RESPONSES: &str = "/v1/responses";
/// The end-of-text token of the model.
const END: u32 = 256;

/// Writes its variables.
const VARIABLES: &str = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}\
    {% if enable_thinking is defined %}{{ '<on>' if enable_thinking else '<off>' }}{% endif %}{{ style }}\
    {% for d in documents or [] %}{{ d.title }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

#[test]
fn a_minimum_of_tokens_delays_the_end() {
    let server = Server::new(HERMES);
    // The model ends its answer as soon as it may.
    let ending = json!({ END.to_string(): 100 });
    for path in [CHAT, COMPLETIONS, RESPONSES] {
        let count = |more: Value| {
            let mut fields = json!({ "logit_bias": ending, "max_tokens": 9 });
            fields
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            let answer = server.answered_at(path, fields);
            let tokens = match path {
                RESPONSES => &answer["usage"]["output_tokens"],
                _ => &answer["usage"]["completion_tokens"],
            };
            let length = match path {
                RESPONSES => answer["status"] == "incomplete",
                _ => answer["choices"][0]["finish_reason"] == "length",
            };
            (tokens.as_u64().unwrap(), length)
        };
        assert_eq!(count(json!({})), (0, false), "{path}");
        assert_eq!(count(json!({ "min_tokens": 5 })), (5, false), "{path}");
        assert_eq!(count(json!({ "min_tokens": 50 })), (9, true), "{path}");
        assert_eq!(count(json!({ "ignore_eos": true })), (9, true), "{path}");
        assert_eq!(count(json!({ "ignore_eos": false })), (0, false), "{path}");
    }
    // Several answers, and a form that is complete earlier.
    let several = json!({ "logit_bias": ending, "n": 3, "min_tokens": 4, "max_tokens": 9 });
    assert_eq!(
        server.answered_at(CHAT, several)["usage"]["completion_tokens"],
        12
    );
    let form =
        json!({ "guided_choice": ["ab"], "min_tokens": 5, "ignore_eos": true, "max_tokens": 9 });
    let choice = server.answered_at(CHAT, form)["choices"][0].clone();
    assert_eq!(
        (&choice["message"]["content"], &choice["finish_reason"]),
        (&json!("ab"), &json!("stop"))
    );
}

#[test]
fn token_ids_end_an_answer() {
    let server = Server::new(HERMES);
    let greedy = |more: Value| {
        let mut fields = json!({ "temperature": 0, "max_tokens": 24, "return_token_ids": true, "ignore_eos": true });
        fields
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let choice = server.answered_at(COMPLETIONS, fields)["choices"][0].clone();
        let ids = choice["token_ids"].as_array().unwrap().iter();
        let ids: Vec<u64> = ids.map(|id| id.as_u64().unwrap()).collect();
        (ids, choice["finish_reason"].clone())
    };
    let (whole, _) = greedy(json!({}));
    // The last token that does not occur before.
    let is_first = |place: &usize| !whole[..*place].contains(&whole[*place]);
    let place = (0..whole.len()).rev().find(is_first).unwrap();
    let stop = whole[place];
    let unused = (0..256).find(|id| !whole.contains(id)).unwrap();
    let (ids, reason) = greedy(json!({ "stop_token_ids": [unused, stop] }));
    assert_eq!((&ids[..], reason), (&whole[..place], json!("stop")));
    let (ids, _) = greedy(json!({ "stop_token_ids": [stop], "min_tokens": place + 1 }));
    assert!(
        ids.len() > place && !ids[..=place].contains(&stop),
        "{ids:?}"
    );
    let (param, _) = server.refused_at(COMPLETIONS, json!({ "stop_token_ids": [257] }));
    assert_eq!(param, "stop_token_ids");
    let many = json!({ "stop_token_ids": vec![1; 257] });
    let message = "stop_token_ids: must be at most 256 ids".to_owned();
    assert_eq!(
        server.refused_at(COMPLETIONS, many),
        ("stop_token_ids".to_owned(), message)
    );
}

#[test]
fn forms_of_other_servers_are_kept() {
    let server = Server::new(HERMES);
    let schema = json!({ "type": "object", "properties": { "b": { "enum": [null, 1] }, "a": { "const": 2 } },
        "required": ["b", "a"], "additionalProperties": false });
    for (field, value) in [
        ("guided_json", schema.clone()),
        ("guided_json", schema.to_string().into()),
        ("json_schema", schema.clone()),
        ("structured_outputs", json!({ "json": schema })),
        ("guided_regex", "\\{\"b\": (null|1), \"a\": 2\\}".into()),
        (
            "guided_choice",
            json!(["{\"b\": null, \"a\": 2}", "{\"b\": 1, \"a\": 2}"]),
        ),
    ] {
        let fields = json!({ field: value, "temperature": 2, "max_tokens": 60 });
        let answer = server.answered_at(COMPLETIONS, fields.clone());
        let text = answer["choices"][0]["text"].as_str().unwrap();
        assert!(
            ["{\"b\": null, \"a\": 2}", "{\"b\": 1, \"a\": 2}"].contains(&text),
            "{field}: {text}"
        );
        let mut both = fields;
        both["tools"] = tools();
        let (param, message) = server.refused_at(CHAT, both);
        assert_eq!(
            (&*param, message),
            ("tools", format!("tools: cannot be combined with {field}"))
        );
    }
    let both = json!({ "guided_regex": "a", "guided_choice": ["a"] });
    let (param, message) = server.refused_at(CHAT, both);
    assert_eq!(param, "guided_regex");
    assert_eq!(
        message,
        "guided_regex: cannot be combined with guided_choice"
    );
    for (field, value) in [
        ("guided_json", json!("{")),
        ("guided_json", json!({ "type": 5 })),
        ("json_schema", json!({ "type": 5 })),
        ("guided_regex", json!("(")),
        ("guided_choice", json!([])),
    ] {
        let (param, message) = server.refused_at(CHAT, json!({ field: value }));
        assert!(
            param == field && message.starts_with(field),
            "{param}: {message}"
        );
    }
}

#[test]
fn a_maximum_has_several_names() {
    let server = Server::new(HERMES);
    let count = |path: &str, mut fields: Value| {
        fields["ignore_eos"] = true.into();
        let usage = server.answered_at(path, fields)["usage"].clone();
        usage["completion_tokens"].as_u64().unwrap()
    };
    for path in [CHAT, COMPLETIONS] {
        assert_eq!(count(path, json!({ "n_predict": 3 })), 3);
        assert_eq!(count(path, json!({ "n_predict": 3, "max_tokens": 2 })), 2);
        assert_eq!(count(path, json!({ "n_predict": -1, "max_tokens": 2 })), 2);
    }
    let all = json!({ "n_predict": 3, "max_tokens": 2, "max_completion_tokens": 4 });
    assert_eq!(count(CHAT, all), 4);
    // Without any, a completion has 16 tokens; without a limit, it fills the context of 4096 up to the server's limit.
    assert_eq!(count(COMPLETIONS, json!({})), 16);
    let stop = json!({ "n_predict": -1, "prompt": [1], "stop_token_ids": (0..200).collect::<Vec<u32>>(), "min_tokens": 20 });
    assert!(count(COMPLETIONS, stop) >= 20);
    for value in [json!(-2), json!(1_u64 << 40)] {
        let (param, _) = server.refused_at(COMPLETIONS, json!({ "n_predict": value }));
        assert_eq!(param, "n_predict");
    }
}

/// The number of tokens of the prompt: one per byte, after the end-of-text token.
fn prompt_tokens(server: &Server, path: &str, mut fields: Value) -> usize {
    fields["max_tokens"] = 1.into();
    let usage = server.answered_at(path, fields)["usage"].clone();
    let count = match path {
        RESPONSES => &usage["input_tokens"],
        _ => &usage["prompt_tokens"],
    };
    count.as_u64().unwrap() as usize - 1
}

#[test]
fn templates_receive_variables() {
    let server = Server::new(VARIABLES);
    for path in [CHAT, RESPONSES] {
        for (fields, text) in [
            (json!({}), "[user]?[assistant]"),
            (json!({ "enable_thinking": true }), "[user]?<on>[assistant]"),
            (
                json!({ "chat_template_kwargs": { "enable_thinking": false } }),
                "[user]?<off>[assistant]",
            ),
            (
                json!({ "enable_thinking": true, "chat_template_kwargs": { "enable_thinking": false, "style": "brief" } }),
                "[user]?<off>brief[assistant]",
            ),
            (
                json!({ "documents": [{ "title": "one" }, { "title": "two" }] }),
                "[user]?onetwo[assistant]",
            ),
            (json!({ "add_generation_prompt": false }), "[user]?"),
        ] {
            assert_eq!(
                prompt_tokens(&server, path, fields.clone()),
                text.len(),
                "{path} {fields}"
            );
        }
        let reserved = json!({ "chat_template_kwargs": { "messages": [] } });
        assert_eq!(server.refused_at(path, reserved).0, "chat_template_kwargs");
    }
}

/// The continuation of a message is that of the text which the template writes for it. A newline after a block is removed.
#[test]
fn the_final_message_is_continued() {
    let server = Server::new(HERMES);
    let messages = |last: Value| json!([{ "role": "user", "content": "hi" }, { "role": "assistant", "content": last }]);
    let parts = json!([{ "type": "text", "text": "well, " }, { "type": "text", "text": "yes" }]);
    let settings = json!({ "temperature": 0, "max_tokens": 12, "ignore_eos": true });
    let with = |more: Value| {
        let mut fields = settings.clone();
        fields
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        fields
    };
    for last in [json!("well, yes"), parts] {
        let ids = b"[user]hi[assistant]well, yes"
            .iter()
            .map(|byte| u32::from(*byte));
        let ids: Vec<u32> = [END].into_iter().chain(ids).collect();
        let expected = server.answered_at(COMPLETIONS, with(json!({ "prompt": ids })));
        let fields = with(
            json!({ "messages": messages(last), "continue_final_message": true, "add_generation_prompt": false }),
        );
        let answer = server.answered_at(CHAT, fields);
        assert_eq!(
            answer["choices"][0]["message"]["content"],
            expected["choices"][0]["text"]
        );
        assert_eq!(answer["usage"]["prompt_tokens"], ids.len());
    }
    let both = json!({ "messages": messages("a".into()), "continue_final_message": true, "add_generation_prompt": true });
    assert_eq!(server.refused_at(CHAT, both).0, "continue_final_message");
    let empty = json!({ "messages": messages(" ".into()), "continue_final_message": true });
    assert_eq!(server.refused_at(CHAT, empty).0, "messages");
}

/// The deprecated fields have the same prompt and the same call as tools.
#[test]
fn functions_are_tools_with_one_call() {
    let server = Server::new(HERMES);
    let functions: Vec<Value> = tools()
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["function"].clone())
        .collect();
    let settings = json!({ "seed": 3, "max_tokens": 300, "parallel_tool_calls": false });
    let with = |more: Value| {
        let mut fields = settings.clone();
        fields
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        fields
    };
    let named = json!({ "type": "function", "function": { "name": "get_weather" } });
    let expected = server.answered_at(
        CHAT,
        with(json!({ "tools": tools(), "tool_choice": named })),
    );
    let fields =
        with(json!({ "functions": functions, "function_call": { "name": "get_weather" } }));
    let answer = server.answered_at(CHAT, fields.clone());
    for count in ["prompt_tokens", "completion_tokens"] {
        assert_eq!(answer["usage"][count], expected["usage"][count]);
    }
    let choice = &answer["choices"][0];
    let call = choice["message"]["function_call"].clone();
    assert_eq!(
        call,
        expected["choices"][0]["message"]["tool_calls"][0]["function"]
    );
    assert_eq!(choice["finish_reason"], "function_call");
    assert!(
        choice["message"].get("tool_calls").is_none() && choice["message"]["content"].is_null()
    );
    let (mut name, mut arguments, mut reason) = (String::new(), String::new(), Value::Null);
    for event in server.streamed(fields) {
        let choice = &event["choices"][0];
        let part = &choice["delta"]["function_call"];
        name += part["name"].as_str().unwrap_or_default();
        arguments += part["arguments"].as_str().unwrap_or_default();
        if !choice["finish_reason"].is_null() {
            reason = choice["finish_reason"].clone();
        }
    }
    assert_eq!(
        (json!({ "name": name, "arguments": arguments }), reason),
        (call.clone(), json!("function_call"))
    );
    // The call and its result have the prompt of those of a tool.
    let user = json!({ "role": "user", "content": "?" });
    let old = json!([user, { "role": "assistant", "content": null, "function_call": call },
        { "role": "function", "name": "get_weather", "content": "7" }]);
    let new = json!([user, { "role": "assistant", "tool_calls": [{ "id": "call00001", "type": "function", "function": call }] },
        { "role": "tool", "tool_call_id": "call00001", "content": "7" }]);
    let old = prompt_tokens(
        &server,
        CHAT,
        json!({ "messages": old, "functions": functions }),
    );
    assert_eq!(
        old,
        prompt_tokens(&server, CHAT, json!({ "messages": new, "tools": tools() }))
    );
    let none = json!({ "functions": functions, "function_call": "none", "max_tokens": 1 });
    assert_eq!(
        server.answered_at(CHAT, none)["usage"]["prompt_tokens"],
        "[user]?[assistant]".len() + 1
    );
}

/// An answer with all of its fields, as part of the next request.
#[test]
fn answers_can_be_sent_back() {
    let server = Server::new(HERMES);
    let fields =
        json!({ "tools": tools(), "tool_choice": "required", "seed": 1, "max_tokens": 300 });
    let message = server.answered_at(CHAT, fields)["choices"][0]["message"].clone();
    let id = message["tool_calls"][0]["id"].clone();
    let user = json!({ "role": "user", "content": "?" });
    let result = json!({ "role": "tool", "tool_call_id": id, "content": "7" });
    server.answered_at(
        CHAT,
        json!({ "messages": [user, message, result], "max_tokens": 1 }),
    );
    let fields = json!({ "max_output_tokens": 9, "include": ["message.output_text.logprobs"], "top_logprobs": 2 });
    let output = server.answered_at(RESPONSES, fields)["output"].clone();
    let mut input = vec![user.clone()];
    input.extend(output.as_array().unwrap().clone());
    input.push(user.clone());
    server.answered_at(RESPONSES, json!({ "input": input, "max_output_tokens": 1 }));
    // Reasoning has two names in answers.
    let template = "{% for m in messages %}{{ m.reasoning_content }}{{ m.content }}{% endfor %}";
    let server = Server::new(template);
    for name in ["reasoning", "reasoning_content"] {
        let answer = json!({ "role": "assistant", "content": "yes", name: "because", "annotations": [], "refusal": null });
        let messages = json!({ "messages": [user, answer, user] });
        assert_eq!(prompt_tokens(&server, CHAT, messages), "?becauseyes?".len());
    }
}
