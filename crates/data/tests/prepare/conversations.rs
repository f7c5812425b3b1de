//! Conversations in the forms that other programs publish, compared with TRL and transformers (`make_conversations.py`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use emberlm_data::{
    PreferenceEncoder, PreferenceForm, PrepareOptions, Split, Tokenizer, read_conversations,
    read_preferences,
};
use emberlm_tokenizer::TokenizerKind::Byte;
use serde::Deserialize;

use crate::prepare::common::{Workspace, chat, options, skip, tokens};
use crate::tables::check_table;

#[derive(Deserialize)]
struct Rendered {
    text: String,
    targets: Vec<(usize, usize)>,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// The ids and the mask of a document: the end-of-text token, then the bytes of the text.
fn expected(rendered: &Rendered) -> (Vec<u32>, Vec<bool>) {
    let mut ids = vec![256];
    ids.extend(rendered.text.bytes().map(u32::from));
    let mut learnt = vec![false; ids.len()];
    for &(start, end) in &rendered.targets {
        learnt[1 + start..=end].fill(true);
    }
    (ids, learnt)
}

#[test]
fn every_form_has_the_tokens_and_targets_of_the_reference() {
    let listing = fs::read(fixtures().join("conversations.json")).unwrap();
    let listing: BTreeMap<String, Vec<Rendered>> = serde_json::from_slice(&listing).unwrap();
    assert!(listing.len() >= 11);
    let tokenizer = Tokenizer::builtin(Byte).unwrap();
    let encoder = PreferenceEncoder::new(&tokenizer, None).unwrap();
    for (name, rendered) in &listing {
        let path = fixtures().join("conversations").join(name);
        let workspace = Workspace::new();
        workspace.manifest(std::slice::from_ref(&path), &chat(options(Byte, 0.0)));
        let dataset = workspace.dataset();
        let (ids, learnt): (Vec<_>, Vec<_>) = rendered.iter().map(expected).unzip();
        assert_eq!(tokens(&dataset, Split::Train), ids.concat(), "{name}");
        let mask = fs::read(workspace.out().join("train_00000.mask")).unwrap();
        let mask: Vec<bool> = mask.into_iter().map(|byte| byte & 1 == 1).collect();
        assert_eq!(mask, learnt.concat(), "{name}");

        // Training on the file has the same sequences.
        let records = read_conversations(std::slice::from_ref(&path)).unwrap();
        assert!(records.iter().all(|record| record.is_conversation));
        for (tokens, rendered) in encoder.encode(&records).into_iter().zip(rendered) {
            let tokens = tokens.unwrap();
            let (ids, learnt) = expected(rendered);
            assert_eq!(
                (&tokens[0].ids, &tokens[0].learnt),
                (&ids, &learnt),
                "{name}"
            );
        }
    }
}

#[test]
fn broken_records_of_mixed_forms_are_named_or_skipped() {
    let workspace = Workspace::new();
    let lines = RefCell::new(vec![
        r#"{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}"#
            .to_owned(),
        r#"{"instruction": "a", "output": "b"}"#.to_owned(),
        r#"{"prompt": "a", "completion": "b"}"#.to_owned(),
    ]);
    check_table("prepare/conversations", |line| {
        let mut lines = lines.borrow_mut();
        lines.push(line.to_owned());
        let input = workspace.file("a.jsonl", format!("{}\n{line}\n", lines[0]));
        workspace.refusal(&[input], &chat(options(Byte, 0.0)))
    });
    let input = workspace.file("all.jsonl", lines.into_inner().join("\n"));
    let options = skip(chat(options(Byte, 0.0)));
    let made = workspace.prepared(&[input], &options);
    assert_eq!(made.left_out.broken(), 7);
    assert_eq!(made.manifest.splits.train.documents, 3);
}

#[test]
fn preferences_have_the_same_forms() {
    let workspace = Workspace::new();
    let read = |name: &str, text: &str, form| {
        let input = workspace.file(name, text);
        let records = read_preferences(&[input], form).map_err(|error| error.to_string())?;
        Ok::<_, String>(
            records
                .into_iter()
                .map(|record| record.examples)
                .collect::<Vec<_>>(),
        )
    };
    let openai = r#"{"prompt": [{"role": "user", "content": "a"}], "chosen": [{"role": "assistant", "content": "b"}], "rejected": [{"role": "assistant", "content": "c"}]}"#;
    let expected = read("a.jsonl", openai, PreferenceForm::Pairs).unwrap();
    for other in [
        r#"{"prompt": [{"from": "human", "value": "a"}], "chosen": [{"from": "gpt", "value": "b"}], "rejected": [{"from": "gpt", "value": "c"}]}"#,
        r#"{"conversations": [{"from": "human", "value": "a"}], "chosen": {"from": "gpt", "value": "b"}, "rejected": {"from": "gpt", "value": "c"}}"#,
        r#"{"instruction": "a", "input": "", "chosen": "b", "rejected": "c"}"#,
    ] {
        let found = read("a.jsonl", other, PreferenceForm::Pairs);
        assert_eq!(found.as_ref(), Ok(&expected), "{other}");
    }
    let texts = read(
        "a.jsonl",
        r#"{"prompt": "a", "chosen": "b", "rejected": "c"}"#,
        PreferenceForm::Pairs,
    );
    assert_eq!(
        read(
            "a.csv",
            "prompt,chosen,rejected\na,b,c\n",
            PreferenceForm::Pairs
        ),
        texts
    );
    let labelled = r#"{"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}], "label": true}"#;
    let talk = r#"{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "label": true}"#;
    assert_eq!(
        read("a.jsonl", labelled, PreferenceForm::Labelled),
        read("a.jsonl", talk, PreferenceForm::Labelled)
    );
    // `messages` beside lists that begin with the prompt is not used.
    let implicit = r#"{"chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "rejected": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "c"}], "messages": [{"role": "user", "content": "x"}]}"#;
    assert_eq!(
        read("a.jsonl", implicit, PreferenceForm::Pairs),
        Ok(expected)
    );
    let unknown =
        r#"{"prompt": [{"from": "narrator", "value": "a"}], "chosen": "b", "rejected": "c"}"#;
    let error = read("a.jsonl", unknown, PreferenceForm::Pairs).unwrap_err();
    assert!(
        error.contains("line 1: `prompt[0].from` is \"narrator\""),
        "{error}"
    );
}

#[test]
fn texts_with_many_nuls_are_warned_of() {
    let workspace = Workspace::new();
    for (text, nuls) in [
        ("plain text".to_owned(), None),
        ("a\0b ".repeat(100), Some(100)),
    ] {
        let input = workspace.file("a.txt", &text);
        let options = PrepareOptions {
            force: true,
            ..options(Byte, 0.0)
        };
        let made = workspace.prepared(&[input], &options);
        let warnings: Vec<String> = made.warnings.iter().map(ToString::to_string).collect();
        let warned = warnings.iter().any(|warning| warning.contains("are NUL"));
        assert_eq!(warned, nuls.is_some(), "{warnings:?}");
    }
}
