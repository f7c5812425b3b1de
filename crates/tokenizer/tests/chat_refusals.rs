//! Invalid templates and records are rejected with the reason. None panics, and no record produces a special
//! token.

use emberlm_tokenizer::chat::{ChatEncoder, ChatTemplate};
use emberlm_tokenizer::{Tokenizer, TokenizerKind};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::tables::check_table;

fn encoder(template: &str) -> ChatEncoder {
    let template = ChatTemplate::parse("test", template).unwrap();
    ChatEncoder::new(template, &Tokenizer::builtin(TokenizerKind::Byte).unwrap())
}

#[test]
fn templates_and_records_are_refused_with_the_reason() {
    let turns = [("user", "a"), ("assistant", "b")];
    let turns = turns.map(|(role, content)| json!({ "role": role, "content": content }));
    let shown = encoder(
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    );
    let last = encoder("{{ messages[-1].content }}");
    check_table("chat_refusals", |row| {
        let (kind, text) = row.split_once(' ').unwrap();
        let encoded = |turns: &[Value]| {
            let record = json!({ "messages": turns }).to_string();
            encoder(&serde_json::from_str::<String>(text).unwrap()).encode(&record)
        };
        let found = match kind {
            "record" => shown.encode(text).map(|tokens| tokens.ids),
            "prompt" => last.prompt(text),
            "template" => encoded(&turns).map(|tokens| tokens.ids),
            "longer" => encoded(&[&turns[..], &turns].concat()).map(|tokens| tokens.ids),
            _ => {
                let source: String = serde_json::from_str(text).unwrap();
                let error = ChatTemplate::parse("test", &source).unwrap_err();
                return error.to_string();
            }
        };
        match found {
            Ok(ids) => format!("{ids:?}"),
            Err(error) => error.to_string(),
        }
    });
    assert!(shown.encode(&"[".repeat(10_000)).is_err());
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
