//! Reasoning in answers and conversations. Regular expressions make the model write it.

use serde_json::{Value, json};

use super::entry::{HERMES, Server, joined};
use super::tools;

/// Writes the reasoning of messages, and the variables of reasoning.
pub const THINKING: &str = "{{ enable_thinking | default('?') }}{{ reasoning_effort | default('?') }}\
    {% for m in messages %}[{{ m.role }}]{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}\
    {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
/// Begins the reasoning.
const BEGINS: &str =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}</think>{% endfor %}[assistant]<think>\n";
/// An answer with reasoning.
pub const ANSWER: &str = "<think>\nab\n</think>\n\nyes";

#[test]
fn reasoning_is_a_field_of_its_message() {
    let server = Server::new(THINKING);
    let fields = json!({ "guided_choice": [ANSWER] });
    let answer = server.answered(fields.clone());
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["reasoning_content"], "ab", "{answer}");
    assert_eq!(message["content"], "yes", "{answer}");
    let events = server.streamed(fields.clone());
    assert_eq!(joined(&events, "reasoning_content"), "ab");
    assert_eq!(joined(&events, "content"), "yes");
    let with = |more: Value| {
        let mut fields = fields.clone();
        fields
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        server.answered(fields)["choices"][0]["message"].clone()
    };
    let message = with(json!({ "reasoning_format": "none" }));
    assert_eq!(message["content"], ANSWER, "{message}");
    let message = with(json!({ "include_reasoning": false }));
    assert_eq!(message["content"], "yes", "{message}");
    assert_eq!(message.get("reasoning_content"), None, "{message}");
    let rule = server.refused(json!({ "reasoning_format": "other" }));
    assert_eq!(rule.0, "reasoning_format", "{rule:?}");
    // A template without tags.
    let plain = Server::new(HERMES).answered(fields);
    assert_eq!(plain["choices"][0]["message"]["content"], ANSWER);
}

#[test]
fn reasoning_may_begin_in_the_prompt() {
    let server = Server::new(BEGINS);
    // The model writes this letter only.
    let fields = json!({ "logit_bias": { "97": 100 }, "max_tokens": 3 });
    let choice = &server.answered(fields)["choices"][0];
    assert_eq!(choice["message"]["reasoning_content"], "aaa", "{choice}");
    assert_eq!(choice["message"]["content"], "", "{choice}");
    assert_eq!(choice["finish_reason"], "length");
    // The form of the answer begins after the reasoning.
    let choice = server.answered(
        json!({ "guided_choice": ["yes"], "logit_bias": { "97": 100 }, "max_tokens": 3 }),
    );
    assert_eq!(choice["choices"][0]["message"]["reasoning_content"], "aaa");
}

#[test]
fn reasoning_can_be_sent_back() {
    let server = Server::new(THINKING);
    let tokens = |message: Value| {
        let user = json!({ "role": "user", "content": "?" });
        let answer = server.answered(json!({ "messages": [user, message, user], "max_tokens": 1 }));
        answer["usage"]["prompt_tokens"].as_u64().unwrap() as usize
    };
    let without = tokens(json!({ "role": "assistant", "content": "yes" }));
    let answered = server.answered(json!({ "guided_choice": [ANSWER] }));
    let with = tokens(answered["choices"][0]["message"].clone());
    assert_eq!(with - without, ANSWER.len() - "yes".len());
}

#[test]
fn effort_sets_the_variables_that_the_template_has() {
    let server = Server::new(THINKING);
    let tokens = |fields: Value| {
        let mut fields = fields;
        fields["max_tokens"] = 1.into();
        let answer = server.answered(fields);
        answer["usage"]["prompt_tokens"].as_u64().unwrap() as usize - 2
    };
    let without = tokens(json!({}));
    for (effort, variables) in [("low", "truelow"), ("none", "falsenone")] {
        let found = tokens(json!({ "reasoning_effort": effort }));
        assert_eq!(found + 2 - without, variables.len(), "{effort}");
    }
    let explicit = json!({ "reasoning_effort": "low", "enable_thinking": false });
    assert_eq!(tokens(explicit) + 2 - without, "falselow".len());
    // Without variables, the effort has no effect.
    let server = Server::new(HERMES);
    let count = |fields: Value| server.answered(fields)["usage"]["prompt_tokens"].clone();
    let with = count(json!({ "reasoning_effort": "high", "max_tokens": 1 }));
    assert_eq!(with, count(json!({ "max_tokens": 1 })));
}

#[test]
fn reasoning_is_an_item_of_a_response() {
    let server = Server::new(THINKING);
    let post = |fields: Value| {
        let (status, body) = server.post(
            "/v1/responses",
            json!({ "model": "m", "input": "?" }),
            fields,
        );
        assert_eq!(status, 200, "{body}");
        body
    };
    let fields = json!({ "guided_choice": [ANSWER] });
    let response: Value = serde_json::from_str(&post(fields)).unwrap();
    let output = response["output"].as_array().unwrap().clone();
    assert_eq!(output.len(), 2, "{response}");
    assert_eq!(output[0]["type"], "reasoning", "{response}");
    let text = json!([{ "type": "reasoning_text", "text": "ab" }]);
    assert_eq!(output[0]["content"], text, "{response}");
    assert_eq!(output[1]["content"][0]["text"], "yes", "{response}");
    let streamed = post(json!({ "guided_choice": [ANSWER], "stream": true }));
    let events = streamed
        .lines()
        .filter_map(|line| line.strip_prefix("event: "));
    let mut kinds: Vec<&str> = events.collect();
    kinds.dedup();
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(kinds, expected);
    // The items as input.
    let user = json!({ "role": "user", "content": "?" });
    let tokens = |items: Vec<Value>| {
        let input: Vec<Value> = [vec![user.clone()], items, vec![user.clone()]].concat();
        let body = post(json!({ "input": input, "max_output_tokens": 1 }));
        let response: Value = serde_json::from_str(&body).unwrap();
        response["usage"]["input_tokens"].as_u64().unwrap() as usize
    };
    let without = tokens(vec![output[1].clone()]);
    assert_eq!(tokens(output) - without, ANSWER.len() - "yes".len());
}

#[test]
fn reasoning_may_precede_calls() {
    let template = format!("{HERMES}{{# </think> #}}");
    let server = Server::new(&template);
    let call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    // What would be a call is part of the reasoning.
    let text = format!("<think>\n{call}\n</think>\n\n");
    let continued =
        json!({ "messages": [{ "role": "user", "content": "?" }], "guided_choice": [text] });
    let message = server.answered(continued)["choices"][0]["message"].clone();
    assert_eq!(message["reasoning_content"], call, "{message}");
    let answer = server.answered(json!({ "tools": tools(), "tool_choice": "required" }));
    let message = &answer["choices"][0]["message"];
    assert!(
        message["tool_calls"][0]["function"]["name"].is_string(),
        "{answer}"
    );
}
