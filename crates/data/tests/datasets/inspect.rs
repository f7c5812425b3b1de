use emberlm_data::{Dataset, inspect};
use emberlm_tokenizer::TokenizerKind::{Byte, Char};

use super::common::{edit_file, llmc, prepared, write_mask};

/// Expected values were counted by hand from the documents in `make.py`.
#[test]
fn lengths_duplicates_and_leakage() {
    let (_source, dataset) = llmc();
    let found = inspect(&dataset, 3, 0, &|_| {}).unwrap();
    let (train, val) = (&found.train, &found.val);
    assert_eq!((train.shards, train.tokens, train.documents), (2, 288, 5));
    let documents = train.found.as_ref().unwrap();
    // 45, 24, 5, 45 and 164 bytes. The sentence about the fox occurs twice.
    let lengths = &documents.lengths;
    assert_eq!(
        (lengths.min(), lengths.median(), lengths.max()),
        (5, 45.0, 164)
    );
    assert_eq!(lengths.mean(), 283.0 / 5.0);
    let bins: Vec<_> = lengths
        .histogram()
        .iter()
        .map(|bin| bin.documents)
        .collect();
    assert_eq!(bins, [1, 0, 1, 2, 0, 1]);
    assert_eq!((documents.count, documents.duplicates), (5, 1));
    assert_eq!(val.found.as_ref().unwrap().duplicates, 0);
    // The document "short" is in both splits.
    assert_eq!(found.leaked, Some(1));
    assert_eq!((train.unknown, train.learnt), (None, None));
    assert_eq!(train.bytes, Some(283));
}

#[test]
fn frequent_and_unused_tokens() {
    let (_source, dataset) = prepared(&["aab\n", "a"], Byte, 0.0);
    let found = inspect(&dataset, 0, 0, &|_| {}).unwrap();
    let tokens: Vec<_> = found
        .train
        .frequent
        .iter()
        .map(|t| (t.id, t.count, t.text.as_str()))
        .collect();
    let expected = [
        (97, 3, "\"a\""),
        (256, 2, "(end of text)"),
        (10, 1, "\"\\n\""),
        (98, 1, "\"b\""),
    ];
    assert_eq!(tokens, expected);
    assert_eq!(found.train.never_used, 253);
    assert_eq!((found.val.tokens, found.val.never_used), (0, 257));
    assert!(found.excerpts.is_empty());
}

#[test]
fn excerpts_are_beginnings_sampled_by_seed() {
    let documents: Vec<String> = (0..20)
        .map(|i| format!("document {i}. {}", "x".repeat(i * 20)))
        .collect();
    let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
    let (_source, dataset) = prepared(&documents, Byte, 0.0);
    let show = |seed| inspect(&dataset, 4, seed, &|_| {}).unwrap().excerpts;
    let shown = show(1);
    assert_eq!(shown.len(), 4);
    for excerpt in &shown {
        let document = documents[excerpt.document as usize];
        assert_eq!(excerpt.tokens, document.len() as u64);
        assert!(document.starts_with(&excerpt.text), "{excerpt:?}");
        assert_eq!(excerpt.whole, excerpt.text == document);
    }
    assert_eq!(show(1), shown);
    assert_ne!(show(2), shown);
    // A request for more excerpts than documents returns one for each document.
    assert_eq!(
        inspect(&dataset, 100, 1, &|_| {}).unwrap().excerpts.len(),
        20
    );
}

#[test]
fn character_dataset_has_no_documents() {
    let (_source, dataset) = prepared(&["hello world", "hello"], Char, 0.5);
    let found = inspect(&dataset, 1, 0, &|_| {}).unwrap();
    assert_eq!((&found.train.found, found.leaked), (&None, None));
    assert_eq!(found.excerpts[0].text, "hello wo");
}

#[test]
fn number_of_targets_is_reported() {
    let (_source, dataset) = prepared(&["abc"], Byte, 0.0);
    write_mask(dataset.folder(), &[0, 1, 1, 1], 3);
    let dataset = Dataset::open(dataset.folder()).unwrap();
    let found = inspect(&dataset, 0, 0, &|_| {}).unwrap();
    assert_eq!((found.train.learnt, found.val.learnt), (Some(3), None));
}

#[test]
fn damaged_dataset_is_rejected() {
    let (_source, dataset) = prepared(&["abc"], Byte, 0.0);
    let path = dataset.folder().join("train_00000.bin");
    edit_file(&path, |bytes| bytes[1027] = 9);
    let message = inspect(&dataset, 1, 0, &|_| {}).unwrap_err().to_string();
    assert!(
        message.ends_with("token 2401 at position 1 is outside the vocabulary of 257"),
        "{message}"
    );
}
