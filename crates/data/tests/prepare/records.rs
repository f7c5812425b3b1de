//! Preparation of JSON Lines records.

use crate::prepare::common::{Workspace, options, tokens};
use emberlm_data::{InputOptions, OnError, PrepareOptions, Split, SplitRule};
use emberlm_tokenizer::Tokenizer;
use emberlm_tokenizer::TokenizerKind::{Byte, Gpt2};

fn line(text: &str) -> String {
    serde_json::json!({ "text": text }).to_string() + "\n"
}

#[test]
fn records_are_documents_and_split_by_hash() {
    let workspace = Workspace::new();
    let texts: Vec<String> = (0..300).map(|i| format!("record {i}")).collect();
    let lines: String = texts.iter().map(|text| line(text)).collect();
    let input = workspace.file("records.jsonl", lines);
    let manifest = workspace.prepared(&[input], &options(Byte, 0.3)).manifest;
    let is_val = |text: &&String| {
        let hex = blake3::hash(text.as_bytes()).to_hex();
        let bits = u64::from_str_radix(&hex[..16], 16).unwrap();
        (bits as f64) < 0.3 * 18_446_744_073_709_551_616.0
    };
    let val: Vec<&String> = texts.iter().filter(is_val).collect();
    assert_eq!(manifest.splits.val.documents, val.len() as u64);
    let dataset = workspace.dataset();
    let mut expected = Vec::new();
    for text in val {
        expected.push(256);
        expected.extend(text.bytes().map(u32::from));
    }
    assert_eq!(tokens(&dataset, Split::Val), expected);
}

#[test]
fn records_by_position_are_only_cut_at_the_border() {
    let workspace = Workspace::new();
    let lines: String = ["abcd", "efgh", "ij"].map(line).concat();
    let input = workspace.file("records.jsonl", lines);
    let options = PrepareOptions {
        split: Some(SplitRule::Position),
        ..options(Byte, 0.4)
    };
    workspace.prepared(&[input], &options);
    let dataset = workspace.dataset();
    let ids = |texts: &[&str]| -> Vec<u32> {
        let bytes = texts.iter().map(|text| text.bytes().map(u32::from));
        bytes
            .flat_map(|bytes| [256].into_iter().chain(bytes))
            .collect()
    };
    assert_eq!(tokens(&dataset, Split::Train), ids(&["abcd", "ef"]));
    assert_eq!(tokens(&dataset, Split::Val), ids(&["gh", "ij"]));
}

#[test]
fn long_record_tokens_do_not_depend_on_cuts() {
    let workspace = Workspace::new();
    let text: String = (0..30_000)
        .map(|i| format!("Line {i} of a long record; it's one of many…\n"))
        .collect();
    let input = workspace.file(
        "records.jsonl",
        line("short") + &line(&text) + &line("last"),
    );
    workspace.prepared(&[input], &options(Gpt2, 0.0));
    let dataset = workspace.dataset();
    let gpt2 = Tokenizer::builtin(Gpt2).unwrap();
    let mut expected = Vec::new();
    for text in ["short", &text, "last"] {
        expected.push(50_256);
        expected.extend(gpt2.encode(text).unwrap());
    }
    assert!(tokens(&dataset, Split::Train) == expected);
    assert_eq!(dataset.manifest().splits.train.documents, 3);
}

#[test]
fn broken_records_are_skipped_and_counted() {
    let workspace = Workspace::new();
    let mut lines = String::new();
    for i in 0..100 {
        lines += &line(&format!("record {i}"));
        if i % 10 == 5 {
            lines += "{\"text\": 7}\n";
        }
    }
    lines += &line("");
    let input = workspace.file("records.jsonl", lines);
    let options = PrepareOptions {
        input: InputOptions {
            on_error: OnError::Skip,
            ..InputOptions::default()
        },
        journal_bytes: 300,
        ..options(Byte, 0.2)
    };
    let prepared = workspace.prepared(&[input], &options);
    let left_out = &prepared.left_out;
    assert_eq!((left_out.broken(), left_out.empty()), (10, 1));
    assert_eq!(left_out.first().len(), 3);
    assert!(
        left_out.first()[0].contains("line 7"),
        "{:?}",
        left_out.first()
    );
    let splits = &prepared.manifest.splits;
    assert_eq!(splits.train.documents + splits.val.documents, 100);
}
