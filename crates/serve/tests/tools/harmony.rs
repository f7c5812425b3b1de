//! Answers and prompts in the format of gpt-oss.

use serde::Deserialize;
use serde_json::{Value, json};

use super::entry::{Server, joined};
use super::tools;

/// A template that writes what the published one does.
const HARMONY: &str = include_str!("../fixtures/harmony.jinja");

#[derive(Deserialize)]
struct Case {
    request: Value,
    text: String,
}

/// A text with `DATE` in place of the current date.
fn without_date(text: &str) -> String {
    let (before, after) = text.split_once("Current date: ").unwrap();
    let (date, after) = after.split_once('\n').unwrap();
    assert!(date.len() == 10 && date.starts_with("20"), "{date}");
    format!("{before}Current date: DATE\n{after}")
}

#[test]
fn prompts_are_those_of_transformers() {
    let server = Server::new(HARMONY);
    let cases: Vec<Case> = serde_json::from_str(include_str!("../fixtures/harmony.json")).unwrap();
    assert!(cases.len() >= 10);
    for Case { mut request, text } in cases {
        let effort = request.as_object_mut().unwrap().remove("reasoning_effort");
        if let Some(effort) = effort {
            request["chat_template_kwargs"] = json!({ "reasoning_effort": effort });
        }
        let tokens = server.answered_at("/tokenize", request.clone())["tokens"].clone();
        let prompt = server.answered_at("/detokenize", json!({ "tokens": tokens }));
        let prompt = without_date(prompt["prompt"].as_str().unwrap());
        assert_eq!(prompt, text, "{request}");
    }
}

/// The fields by which a model that would write anything writes `answer`.
fn forced(answer: &str) -> Value {
    json!({ "messages": [{ "role": "user", "content": "?" }, { "role": "assistant", "content": "Oh. " }],
        "continue_final_message": true, "guided_choice": [answer], "max_tokens": 400 })
}

#[test]
fn channels_become_fields_of_the_message() {
    let server = Server::new(HARMONY);
    // A constraint of an answer that continues a text begins with the first token.
    let answer = "So.<|end|><|start|>assistant<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant\
         <|channel|>final<|message|>Yes.";
    let message = server.answered(forced(answer))["choices"][0]["message"].clone();
    assert_eq!(message["reasoning_content"], "Hm.", "{message}");
    assert_eq!(message["content"], "So.\n\nYes.", "{message}");
    let events = server.streamed(forced(answer));
    assert_eq!(joined(&events, "reasoning_content"), "Hm.");
    assert_eq!(joined(&events, "content"), "So.\n\nYes.");
    // The answer is cut off within its reasoning.
    let mut fields = forced(answer);
    fields["max_tokens"] = (answer.find("m.<|end|>").unwrap()).into();
    let choice = server.answered(fields)["choices"][0].clone();
    assert_eq!(choice["finish_reason"], "length", "{choice}");
    assert_eq!(choice["message"]["reasoning_content"], "H", "{choice}");
    assert_eq!(choice["message"]["content"], "So.", "{choice}");
}

#[test]
fn markers_may_be_special_tokens() {
    for token in ["<|channel|>", "<|end|>", "<|message|>"] {
        let server = Server::with_special_token(HARMONY, token);
        let answer = "So.<|end|><|start|>assistant<|channel|>analysis<|message|>Hm.<|end|>";
        let message = server.answered(forced(answer))["choices"][0]["message"].clone();
        assert_eq!(message["reasoning_content"], "Hm.", "{message}");
        assert_eq!(message["content"], "So.", "{message}");
    }
}

#[test]
fn a_form_constrains_the_final_text() {
    let server = Server::new(HARMONY);
    let ask = |more: Value| {
        let mut fields = json!({ "guided_choice": ["yes"], "max_tokens": 100 });
        fields
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        server.answered(fields)["choices"][0].clone()
    };
    // Random text does not begin the final message, which is required.
    assert_eq!(ask(json!({}))["finish_reason"], "length");
    // A continued message is the final one.
    let messages =
        json!([{ "role": "user", "content": "?" }, { "role": "assistant", "content": "Oh " }]);
    let choice = ask(json!({ "messages": messages, "continue_final_message": true }));
    assert_eq!(choice["message"]["content"], "yes", "{choice}");
}

#[test]
fn a_required_call_excludes_a_final_text() {
    let server = Server::new(HARMONY);
    let fields = json!({ "tools": tools(), "tool_choice": "required", "max_tokens": 300, "n": 4, "seed": 1 });
    let answer = server.answered(fields);
    for choice in answer["choices"].as_array().unwrap() {
        let message = &choice["message"];
        assert_eq!(message["content"], Value::Null, "{choice}");
        // Random text has no end of its reasoning.
        let calls = message["tool_calls"].as_array().map_or(0, Vec::len);
        let reasons = message["reasoning_content"].is_string();
        assert!(calls == 1 || reasons, "{choice}");
        if calls == 1 && choice["finish_reason"] == "tool_calls" {
            super::check_call(&message["tool_calls"][0]);
        }
    }
}
