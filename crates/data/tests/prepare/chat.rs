//! Preparation of conversations: tokens, masks and errors.

use std::fs;

use emberlm_data::{Encoding, PrepareOptions, Split, Warning, prepare};
use emberlm_tokenizer::TokenizerKind::{Byte, Char, Gpt2};
use serde_json::json;

use crate::prepare::common::{Workspace, chat, options, skip, tokens};

fn talk(question: &str, answer: &str) -> String {
    let messages = [
        json!({ "role": "user", "content": question }),
        json!({ "role": "assistant", "content": answer }),
    ];
    json!({ "messages": messages }).to_string() + "\n"
}

fn error_message(workspace: &Workspace, name: &str, text: &str, options: PrepareOptions) -> String {
    let input = workspace.file(name, text);
    let result = prepare(&[input], &workspace.out(), &chat(options), &|_| {});
    result.unwrap_err().to_string()
}

#[test]
fn only_answers_are_targets() {
    let workspace = Workspace::new();
    let completion = json!({ "prompt": "1 + 1 = ", "completion": "2" }).to_string();
    let input = workspace.file("talks.jsonl", talk("Hi", "Ho") + &completion);
    let made = workspace.prepared(&[input], &chat(options(Byte, 0.0)));

    // A document begins with the end-of-text token, 256, and a completion also ends with one. ChatML as published by
    // its authors.
    let parts: [(&str, bool); 6] = [
        (
            "\0<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
            false,
        ),
        ("Ho<|im_end|>", true),
        ("\n", false),
        ("\x001 + 1 = ", false),
        ("2", true),
        ("\0", true),
    ];
    let id = |byte: u8| if byte == 0 { 256 } else { u32::from(byte) };
    let ids: Vec<u32> = parts
        .iter()
        .flat_map(|(text, _)| text.bytes().map(id))
        .collect();
    let mut mask = parts
        .map(|(text, learnt)| vec![u8::from(learnt); text.len()])
        .concat();
    // The mask marks the first token of both documents.
    for at in [0, ids.len() - 11] {
        mask[at] += 2;
    }
    assert_eq!(tokens(&workspace.dataset(), Split::Train), ids);
    assert_eq!(
        fs::read(workspace.out().join("train_00000.mask")).unwrap(),
        mask
    );
    let template = made.manifest.chat_template.as_ref().unwrap();
    assert!(template.template.contains("<|im_start|>"), "{template:?}");
    let split = &made.manifest.splits.train;
    assert_eq!((split.documents, split.bytes), (2, ids.len() as u64 - 3));
    assert_eq!(split.shards[0].mask.as_ref().unwrap().learnt, 14);
    let dataset = workspace.dataset();
    dataset.verify().unwrap();
    // The end-of-text token that ends a completion belongs to its document and begins no other.
    let found = emberlm_data::inspect(&dataset, 0, 0, &|_| {}).unwrap();
    let lengths = found.train.found.unwrap().lengths;
    assert_eq!((lengths.min(), lengths.max()), (10, ids.len() as u64 - 12));
    let names = ["<|im_end|>", "<|im_start|>"].map(str::to_owned).to_vec();
    assert!(made.warnings.contains(&Warning::MissingSpecials { names }));
}

#[test]
fn broken_conversation_stops_or_is_skipped() {
    let workspace = Workspace::new();
    let role = r#"{"messages": [{"role": "", "content": "x"}]}"#;
    let text = format!("{}{role}\n{{}}\n{}", talk("a", "b"), talk("c", "d"));
    let message = error_message(&workspace, "talks.jsonl", &text, options(Byte, 0.0));
    assert!(
        message.contains("talks.jsonl: line 2: `messages[0].role` must be"),
        "{message}"
    );

    let skip = skip(chat(options(Byte, 0.0)));
    let made = workspace.prepared(&[workspace.path("in/talks.jsonl")], &skip);
    assert_eq!(made.left_out.broken(), 2);
    assert!(
        made.left_out.first()[1].contains("line 3"),
        "{:?}",
        made.left_out
    );
    assert_eq!(made.manifest.splits.train.documents, 2);
}

#[test]
fn unsupported_chat_inputs_and_templates_are_rejected() {
    let workspace = Workspace::new();
    let message = error_message(&workspace, "a.txt", "text", options(Byte, 0.0));
    assert!(
        message.contains("a chat template takes records"),
        "{message}"
    );
    let message = error_message(&workspace, "a.jsonl", &talk("a", "b"), options(Char, 0.0));
    assert!(message.contains("char is not"), "{message}");
    let unknown = PrepareOptions {
        encoding: Encoding::Chat {
            template: "vicuna".to_owned(),
        },
        ..options(Gpt2, 0.0)
    };
    let result = prepare(
        &[workspace.path("in/a.jsonl")],
        &workspace.out(),
        &unknown,
        &|_| {},
    );
    let message = result.unwrap_err().to_string();
    assert!(
        message.contains("unknown chat template `vicuna`"),
        "{message}"
    );
    assert!(workspace.left().is_empty(), "{:?}", workspace.left());
}
