//! Every format and compression, compared with files written and read by Python's libraries (`make_inputs.py`).

use std::collections::BTreeMap;
use std::fs;

use emberlm_data::{Format, InputOptions};
use serde::Deserialize;

use super::{fixture, format, read, skip};

#[derive(Deserialize)]
struct Listing {
    texts: Vec<String>,
    files: BTreeMap<String, File>,
}

#[derive(Deserialize)]
struct File {
    field: String,
    /// Record numbers, and indices of their texts.
    documents: Vec<(u64, usize)>,
    broken: Vec<u64>,
    empty: u64,
}

#[test]
fn every_file_matches_the_python_reference() {
    let listing = fs::read(fixture("../inputs.json")).unwrap();
    let listing: Listing = serde_json::from_slice(&listing).unwrap();
    assert_eq!(
        listing.files.len(),
        fs::read_dir(fixture("")).unwrap().count()
    );
    for (name, expected) in &listing.files {
        let options = InputOptions {
            field: expected.field.clone(),
            format: (name == "no_extension").then_some(Format::Jsonl),
            ..skip()
        };
        let path = fixture(name);
        let found = read(&path, &options).unwrap();
        let text = |&(record, at): &(u64, usize)| (record, listing.texts[at].clone());
        let documents: Vec<(u64, String)> = expected.documents.iter().map(text).collect();
        assert_eq!(found.documents, documents, "{name}");
        assert_eq!(found.left_out.empty(), expected.empty, "{name}");
        let broken = found.left_out.broken();
        assert_eq!(broken, expected.broken.len() as u64, "{name}");
        for (message, record) in found.left_out.first().iter().zip(&expected.broken) {
            let null = format!(" {record}: `{}` is null", expected.field);
            assert!(message.ends_with(&null), "{name}: {message}");
        }
        assert_eq!(found.bytes, fs::metadata(&path).unwrap().len(), "{name}");
    }
}

#[test]
fn raw_records_are_unchanged_lines() {
    let options = InputOptions {
        raw_records: true,
        ..skip()
    };
    let found = read(&fixture("mark_and_blanks.jsonl"), &options).unwrap();
    let content = fs::read_to_string(fixture("plain.jsonl")).unwrap();
    let texts: Vec<&str> = found
        .documents
        .iter()
        .map(|(_, text)| text.as_str())
        .collect();
    assert_eq!(texts, content.lines().collect::<Vec<_>>());
    // There are two blank lines between records.
    assert_eq!(found.documents[2].0, 7);
}

#[test]
fn explicit_format_overrides_the_file_name() {
    let whole = read(&fixture("plain.jsonl"), &format(Format::Text)).unwrap();
    let content = fs::read_to_string(fixture("plain.jsonl")).unwrap();
    assert_eq!(whole.documents, [(1, content)]);
}
