//! Invalid templates and records are rejected with the reason. None panics, and no record produces a special
//! token.

use emberlm_tokenizer::chat::{ChatEncoder, ChatTemplate};
use emberlm_tokenizer::{Tokenizer, TokenizerKind};
use proptest::prelude::*;
use serde_json::{Value, json};

fn encoder(template: &str) -> ChatEncoder {
    let template = ChatTemplate::parse("test", template).unwrap();
    ChatEncoder::new(template, &Tokenizer::builtin(TokenizerKind::Byte).unwrap())
}

fn chat() -> Value {
    json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})
}

#[test]
fn broken_templates_are_rejected_with_the_line() {
    let parse = |source: &str| ChatTemplate::parse("test", source).unwrap_err().to_string();
    let message = parse("a\n{% if x %}\nb");
    assert!(
        message.starts_with("chat template test, line 3: syntax error"),
        "{message}"
    );
    let message = parse("a\n\n{% generation %}b{% endfor %}");
    assert!(
        message.starts_with("chat template test, line 3: "),
        "{message}"
    );
    let message = parse("{{ messages | nope }}{{ }}");
    assert!(
        message.starts_with("chat template test, line 1: "),
        "{message}"
    );
}

#[test]
fn exceptions_of_templates_are_reported_with_the_line() {
    let run = |source: &str| {
        encoder(source)
            .encode(&chat().to_string())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        run("\n{{ raise_exception('no tools here') }}"),
        "chat template test, line 2: no tools here"
    );
    let message = run(
        "{% for m in messages %}\n{% generation %}\n{{ raise_exception('deep') }}\n{% endgeneration %}{% endfor %}",
    );
    assert_eq!(message, "chat template test, line 3: deep");
    let message = run("{{ messages[0].content.nope.nope }}");
    assert!(
        message.starts_with("chat template test, line 1: undefined"),
        "{message}"
    );
    let message = run("{{ messages | nope }}");
    assert!(message.contains("nope"), "{message}");
}

#[test]
fn templates_have_an_instruction_limit() {
    let endless =
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
    let message = ChatTemplate::parse("test", endless)
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("more than 10000000 instructions"),
        "{message}"
    );
    let recursive = "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}";
    assert!(encoder(recursive).encode(&chat().to_string()).is_err());
}

#[test]
fn templates_that_hide_the_answer_are_rejected() {
    let run = |source: &str| {
        let more = json!({"messages": [
            {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
            {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
        ]});
        encoder(source)
            .encode(&more.to_string())
            .unwrap_err()
            .to_string()
    };
    let message = run("{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}");
    assert!(
        message.starts_with(
            "chat template test does not show which part of its text is the answer `messages[3]`"
        ),
        "{message}"
    );
    assert!(
        message.contains("{% generation %} and {% endgeneration %}"),
        "{message}"
    );
    let message = run(
        "{% for m in messages %}{{ m.content }}{% if loop.last and not add_generation_prompt %}.{% endif %}{% endfor %}",
    );
    assert!(
        message
            .contains("`messages[1]`: the template writes it otherwise where more messages follow"),
        "{message}"
    );
    let message = run(
        "{% set x %}{% generation %}{{ messages[0].content }}{% endgeneration %}{% endset %}{{ x[:1] }}",
    );
    assert!(message.contains("cuts through"), "{message}");
}

#[test]
fn broken_records_are_rejected_with_the_field() {
    let encoder = encoder(
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    );
    let user = json!({"role": "user", "content": "a"});
    let cases = [
        (json!([1]), "`record` must be an object"),
        (
            json!({}),
            "`messages` is missing, and so are `prompt` and `completion`",
        ),
        (
            json!({"messages": null, "prompt": "a"}),
            "`completion` is missing",
        ),
        (json!({"completion": "a"}), "`prompt` is missing"),
        (
            json!({"prompt": "a", "completion": [user]}),
            "`prompt` must be a string or a list of messages",
        ),
        (
            json!({"prompt": [user], "completion": "a"}),
            "`completion` must be a string or a list of messages",
        ),
        (
            json!({"prompt": 1, "completion": 2}),
            "`prompt` must be a string or a list of messages",
        ),
        (
            json!({"messages": "a"}),
            "`messages` must be a list, or a list written as JSON",
        ),
        (
            json!({"messages": []}),
            "`messages` must have at least one message",
        ),
        (
            json!({"messages": [user, "a"]}),
            "`messages[1]` must be an object, or an object written as JSON",
        ),
        (
            json!({"messages": [{"content": "a"}]}),
            "`messages[0].role` must be a nonempty string",
        ),
        (
            json!({"messages": [{"role": "", "content": "a"}]}),
            "`messages[0].role` must be a nonempty string",
        ),
        (
            json!({"messages": [{"role": "user"}]}),
            "`messages[0].content` is missing",
        ),
        (
            json!({"messages": [{"role": "user", "content": 1}]}),
            "`messages[0].content` must be a string or a list",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
            "`messages[0].content[0].type` is \"image_url\", but only \"text\" can be read",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "text"}]}]}),
            "`messages[0].content[0].text` must be a string",
        ),
        (
            json!({"messages": [{"role": "user", "content": ["a"]}]}),
            "`messages[0].content[0].type` must be \"text\"",
        ),
        (
            json!({"messages": [user, {"role": "assistant", "content": "a", "weight": 0.5}]}),
            "`messages[1].weight` must be 0 or 1",
        ),
        (
            json!({"messages": [user]}),
            "`messages` hold none of the assistant's that is to be learnt",
        ),
        (
            json!({"messages": [user, {"role": "assistant", "content": "a"}], "chat_template_kwargs": 1}),
            "`chat_template_kwargs` must be an object",
        ),
    ];
    for (record, expected) in cases {
        let message = encoder.encode(&record.to_string()).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{record}: {message}");
    }
    let message = encoder.encode("{\"messages\": [").unwrap_err().to_string();
    assert_eq!(
        message,
        "it is not JSON: EOF while parsing a list at column 14"
    );
    let deep = "[".repeat(10_000);
    assert!(encoder.encode(&deep).is_err());
}

#[test]
fn prompts_need_messages() {
    let encoder = encoder("{{ messages[-1].content }}");
    let user = json!({"role": "user", "content": "a"});
    for (record, expected) in [
        (
            json!({"messages": []}),
            "`messages` must have at least one message",
        ),
        (json!({"messages": null}), "`messages` is missing"),
        (
            json!({"prompt": "a", "completion": "b"}),
            "`messages` is missing",
        ),
        (
            json!({"messages": [user, {"role": "user"}]}),
            "`messages[1].content` is missing",
        ),
        (json!("a"), "`record` must be an object"),
    ] {
        let message = encoder.prompt(&record.to_string()).unwrap_err().to_string();
        assert_eq!(message, expected, "{record}");
    }
    assert!(
        encoder
            .prompt("{")
            .unwrap_err()
            .to_string()
            .starts_with("it is not JSON")
    );
    assert_eq!(
        encoder
            .prompt(&json!({"messages": [user]}).to_string())
            .unwrap(),
        [97]
    );
}

/// Contents made of parts of special tokens' names, marks and white space.
fn content() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "<|im_start|>",
        "<|im_end|>",
        "<|im_",
        "end|>",
        "<",
        "|",
        ">",
        "<|",
        "|>",
        "<|eot_id|>",
        "<|start_header_id|>",
        "</s>",
        "<s>",
        "[INST]",
        "[/INST]",
        "[",
        "INST]",
        "<think>",
        "\u{F0000}",
        "\u{F0001}",
        "\u{F0002}",
        "a",
        "é",
        " ",
        "\n",
        "\u{1F525}",
        "assistant",
        "<|begin_of_text|>",
        "\0",
    ]);
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        content().prop_map(Value::from),
        prop::sample::select(vec!["user", "assistant", "system", "text"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let keys = vec![
            "messages",
            "prompt",
            "completion",
            "role",
            "content",
            "type",
            "text",
            "weight",
            "tools",
            "<|im_end|>",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(prop::sample::select(keys), inner, 0..4)
                .prop_map(|map| json!(map)),
        ]
    })
}

fn chat_tokenizer() -> Tokenizer {
    let json = include_str!("fixtures/chat/tokenizer.json");
    Tokenizer::from_json(json).unwrap()
}

#[test]
fn no_content_produces_a_special_token() {
    let tokenizer = chat_tokenizer();
    let specials: Vec<u32> = tokenizer
        .special_tokens()
        .into_iter()
        .map(|(_, id)| id)
        .collect();
    let id = |name: &str| tokenizer.special_id(name).unwrap();
    let (start, end) = (id("<|im_start|>"), id("<|im_end|>"));
    let (begin, eot) = (id("<|begin_of_text|>"), id("<|eot_id|>"));
    let (header, end_header) = (id("<|start_header_id|>"), id("<|end_header_id|>"));
    let chatml = ChatEncoder::new(ChatTemplate::chatml().unwrap(), &tokenizer);
    let llama3 = ChatEncoder::new(ChatTemplate::llama3().unwrap(), &tokenizer);
    let strategy = prop::collection::vec((content(), content()), 1..3);
    let config = ProptestConfig {
        cases: 200,
        ..ProptestConfig::default()
    };
    proptest!(config, |(turns in strategy)| {
        let messages: Vec<Value> = turns.iter().flat_map(|(question, answer)| [
            json!({"role": "user", "content": question}), json!({"role": "assistant", "content": answer}),
        ]).collect();
        let record = json!({"messages": messages}).to_string();
        let of = |encoder: &ChatEncoder| encoder.encode(&record).unwrap().ids;
        let special = |ids: &[u32]| ids.iter().copied().filter(|id| specials.contains(id)).collect::<Vec<_>>();
        let ids = of(&chatml);
        prop_assert_eq!(special(&ids), [start, end].repeat(messages.len()));
        let text: String = messages.iter().map(|message| format!(
            "<|im_start|>{}\n{}<|im_end|>\n", message["role"].as_str().unwrap(), message["content"].as_str().unwrap(),
        )).collect();
        prop_assert_eq!(tokenizer.decode(&ids).unwrap(), text);
        let expected: Vec<u32> = [begin].into_iter().chain([header, end_header, eot].repeat(messages.len())).collect();
        prop_assert_eq!(special(&of(&llama3)), expected);
    });
}

#[test]
fn any_record_gives_tokens_or_an_error() {
    let tokenizer = chat_tokenizer();
    let qwen =
        ChatTemplate::parse("qwen", include_str!("fixtures/chat/templates/qwen.jinja")).unwrap();
    let encoders = [
        ChatEncoder::new(ChatTemplate::chatml().unwrap(), &tokenizer),
        ChatEncoder::new(qwen, &Tokenizer::builtin(TokenizerKind::Byte).unwrap()),
    ];
    let config = ProptestConfig {
        cases: 300,
        ..ProptestConfig::default()
    };
    let message = (json_value(), json_value(), json_value());
    proptest!(config, |(any in json_value(), list in prop::collection::vec(message, 0..3))| {
        let messages: Vec<Value> = list.into_iter()
            .map(|(role, content, tool_calls)| json!({"role": role, "content": content, "tool_calls": tool_calls}))
            .collect();
        let answered = [messages.clone(), vec![json!({"role": "assistant", "content": "b"})]].concat();
        for record in [any.clone(), json!({"messages": messages, "tools": any}), json!({"messages": answered, "tools": any})] {
            for encoder in &encoders {
                if let Ok(ids) = encoder.prompt(&record.to_string()) {
                    prop_assert!(!ids.is_empty());
                }
                if let Ok(tokens) = encoder.encode(&record.to_string()) {
                    prop_assert_eq!(tokens.ids.len(), tokens.learnt.len());
                    prop_assert!(tokens.learnt.contains(&true));
                }
            }
        }
    });
}
