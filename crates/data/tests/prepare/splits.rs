//! Assignment of documents to splits, removal of duplicates, and warnings.

use std::num::NonZero;
use std::path::PathBuf;

use crate::prepare::common::{Workspace, options, run, tokens};
use emberlm_data::{PrepareOptions, Split, SplitRule, Warning};
use emberlm_tokenizer::TokenizerChoice;
use emberlm_tokenizer::TokenizerKind::{Byte, Gpt2};

const END: u32 = 256;

/// The documents of a split of a byte dataset.
fn documents(workspace: &Workspace, split: Split) -> Vec<String> {
    let dataset = workspace.dataset();
    let ids = tokens(&dataset, split);
    let documents = ids.split(|&id| id == END).skip(1);
    let text = |ids: &[u32]| ids.iter().map(|&id| id as u8).collect();
    documents
        .map(|ids| String::from_utf8(text(ids)).unwrap())
        .collect()
}

/// Writes one file for each of these texts.
fn files(workspace: &Workspace, texts: &[&str]) -> Vec<PathBuf> {
    let write = |(at, text): (usize, &&str)| workspace.file(&format!("{at:03}"), text);
    texts.iter().enumerate().map(write).collect()
}

/// Returns true if a document is for validation according to the definition: the first 64 bits of its BLAKE3 are
/// below the fraction.
fn by_hash(text: &str, val_fraction: f64) -> bool {
    let hex = blake3::hash(text.as_bytes()).to_hex();
    let bits = u64::from_str_radix(&hex[..16], 16).unwrap();
    (bits as f64) < val_fraction * 18_446_744_073_709_551_616.0
}

#[test]
fn split_hash_matches_a_blake3_test_vector() {
    // The published BLAKE3 test vector for empty input begins with af1349b9f5f9a1a6, which is the fraction 0.6838.
    assert!(by_hash("", 0.684) && !by_hash("", 0.683));
}

#[test]
fn document_stays_in_its_split_when_the_corpus_grows() {
    let texts: Vec<String> = (0..200).map(|i| format!("document {i}")).collect();
    let all: Vec<&str> = texts.iter().map(String::as_str).collect();
    let options = PrepareOptions {
        split: Some(SplitRule::Hash),
        ..options(Byte, 0.2)
    };
    for texts in [&all[50..150], &all] {
        let workspace = Workspace::new();
        workspace.manifest(&files(&workspace, texts), &options);
        let expected = |val| -> Vec<&str> {
            let texts = texts.iter().copied();
            texts.filter(|text| by_hash(text, 0.2) == val).collect()
        };
        assert_eq!(documents(&workspace, Split::Val), expected(true));
        assert_eq!(documents(&workspace, Split::Train), expected(false));
    }
}

#[test]
fn split_by_file_uses_the_named_files() {
    let workspace = Workspace::new();
    let train = files(&workspace, &["first", "second"]);
    let val = workspace.file("val.txt", "third");
    let options = PrepareOptions {
        val: vec![val],
        ..options(Byte, 0.1)
    };
    workspace.manifest(&train, &options);
    assert_eq!(documents(&workspace, Split::Train), ["first", "second"]);
    assert_eq!(documents(&workspace, Split::Val), ["third"]);
}

#[test]
fn contradictory_split_options_are_rejected() {
    let workspace = Workspace::new();
    let inputs = files(&workspace, &["text"]);
    let error_message = |split, val: &[PathBuf]| {
        let options = PrepareOptions {
            split: Some(split),
            val: val.to_vec(),
            ..options(Byte, 0.1)
        };
        workspace.refusal(&inputs, &options)
    };
    assert!(error_message(SplitRule::File, &[]).contains("needs the inputs"));
    assert!(error_message(SplitRule::Hash, &inputs).contains("the split is not by file"));
    assert_eq!(
        "random".parse::<SplitRule>().unwrap_err().to_string(),
        "unknown split `random`: choose position, hash or file"
    );
}

#[test]
fn empty_training_split_is_an_error() {
    let workspace = Workspace::new();
    let text = "document 7";
    let options = PrepareOptions {
        split: Some(SplitRule::Hash),
        ..options(Byte, 0.999_999)
    };
    assert!(by_hash(text, 0.999_999));
    let error = run(&files(&workspace, &[text]), &workspace.out(), &options).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the train split would be empty: the only document is for validation"
    );
    assert_eq!(workspace.left(), [""; 0]);
}

#[test]
fn duplicates_are_dropped_before_the_border_is_computed() {
    let workspace = Workspace::new();
    let inputs = files(&workspace, &["abcd", "abcd", "efgh", "abcd", "ij"]);
    let options = PrepareOptions {
        dedup: true,
        ..options(Byte, 0.3)
    };
    let prepared = workspace.prepared(&inputs, &options);
    // Of the 10 remaining characters, 7 are for training.
    assert_eq!(documents(&workspace, Split::Train), ["abcd", "efg"]);
    assert_eq!(documents(&workspace, Split::Val), ["h", "ij"]);
    assert_eq!(prepared.duplicates, 2);
    assert!(
        !prepared
            .warnings
            .iter()
            .any(|warning| matches!(warning, Warning::Duplicates { .. } | Warning::Leaked { .. }))
    );
}

#[test]
fn duplicate_is_dropped_from_the_validation_files() {
    let workspace = Workspace::new();
    let train = files(&workspace, &["abcd", "efgh"]);
    let options = PrepareOptions {
        val: vec![workspace.file("v1", "efgh"), workspace.file("v2", "ijkl")],
        dedup: true,
        ..options(Byte, 0.1)
    };
    workspace.manifest(&train, &options);
    assert_eq!(documents(&workspace, Split::Val), ["ijkl"]);
}

#[test]
fn duplicates_and_leaks_cause_warnings() {
    let workspace = Workspace::new();
    let train = files(&workspace, &["abcd", "efgh", "abcd"]);
    let options = PrepareOptions {
        val: vec![workspace.file("v1", "efgh"), workspace.file("v2", "ijkl")],
        ..options(Byte, 0.1)
    };
    let warnings = workspace.prepared(&train, &options).warnings;
    assert_eq!(
        warnings,
        [
            Warning::ShortVal { tokens: 10 },
            Warning::Duplicates {
                duplicates: 2,
                compared: 5
            },
            Warning::Leaked { leaked: 1 },
        ]
    );
}

#[test]
fn short_documents_cause_a_warning() {
    let workspace = Workspace::new();
    let mut texts = vec!["one two three four five six seven eight nine ten"; 4];
    texts.extend(["a word"; 6]);
    let options = PrepareOptions {
        dedup: false,
        ..options(Gpt2, 0.0)
    };
    let warnings = workspace
        .prepared(&files(&workspace, &texts), &options)
        .warnings;
    assert!(warnings.contains(&Warning::ShortDocuments {
        short: 6,
        documents: 10
    }));
    let shown = warnings[0].to_string();
    assert!(
        shown.starts_with("6 of 10 documents have fewer than 8 tokens"),
        "{shown}"
    );
}

#[test]
fn split_rules_do_not_depend_on_threads() {
    let workspace = Workspace::new();
    let text = |i: usize| format!("Text {} says: {}\n", i % 40, "lorem ipsum ".repeat(i % 40));
    let texts: Vec<String> = (0..300).map(text).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let inputs = files(&workspace, &texts);
    for (split, dedup) in [(SplitRule::Position, true), (SplitRule::Hash, false)] {
        let made = [1, 3].map(|threads| {
            let options = PrepareOptions {
                split: Some(split),
                dedup,
                threads: NonZero::new(threads),
                shard_tokens: 9000,
                journal_bytes: 2000,
                ..options(Byte, 0.2)
            };
            let out = workspace.path(&format!("{split}-{threads}"));
            run(&inputs, &out, &options).unwrap()
        });
        // The manifests include the hashes of the shards.
        assert_eq!(made[0], made[1], "{split}");
    }
}

#[test]
fn unknown_tokens_are_counted_and_cause_a_warning() {
    let workspace = Workspace::new();
    let words = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "a": 1, "b": 2}, "unk_token": "<unk>"}}"#;
    let tokenizer = workspace.path("tokenizer.json");
    std::fs::write(&tokenizer, words).unwrap();
    let options = PrepareOptions {
        journal_bytes: 4,
        ..options(TokenizerChoice::File(tokenizer), 0.0)
    };
    let inputs = files(&workspace, &["a b c a", "b", "c d"]);
    let warnings = workspace.prepared(&inputs, &options).warnings;
    let expected = Warning::UnknownTokens {
        unknown: 3,
        tokens: 7,
    };
    assert_eq!(warnings, std::slice::from_ref(&expected));
    let shown = "3 of 7 tokens (42.86%) are unknown ones: ";
    assert!(expected.to_string().starts_with(shown), "{expected}");
}
