//! Compares training with Python's `tokenizers`: `fixtures/make_trained.py` trained on the same texts with the
//! same settings.

use std::collections::BTreeMap;

use emberlm_tokenizer::{BpeOptions, BpeTraining, Pattern, PieceCounts, Tokenizer};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Golden {
    trained: BTreeMap<String, Vec<Case>>,
}

#[derive(Deserialize)]
struct Case {
    text: String,
    ids: Vec<u32>,
}

fn golden() -> BTreeMap<String, Vec<Case>> {
    let golden: Golden = serde_json::from_str(include_str!("fixtures/trained.json")).unwrap();
    golden.trained
}

const LICENSE: &str = include_str!("../../../LICENSE-APACHE");

fn trained(pattern: &str) -> Tokenizer {
    let options = BpeOptions {
        pattern: pattern.parse::<Pattern>().unwrap(),
        special: vec!["<|im_start|>".to_owned()],
        ..BpeOptions::new(600)
    };
    let training = BpeTraining::new(options).unwrap();
    let mut counts = PieceCounts::default();
    let golden = golden();
    let texts = golden[pattern].iter().map(|case| case.text.as_str());
    for text in LICENSE.split('\n').chain(texts) {
        counts.add(training.count(text));
    }
    training.train(counts).unwrap()
}

#[test]
fn vocabularies_and_merges_match_python() {
    for (name, json) in [
        ("gpt2", include_str!("fixtures/trained/gpt2.json")),
        ("cl100k", include_str!("fixtures/trained/cl100k.json")),
    ] {
        let expected: Value = serde_json::from_str(json).unwrap();
        let tokenizer = trained(name);
        let found: Value = serde_json::from_slice(&tokenizer.to_tokenizer_json()).unwrap();
        assert_eq!(
            found["model"]["vocab"], expected["model"]["vocab"],
            "{name}"
        );
        let merges = found["model"]["merges"].as_array().unwrap();
        let merge = |pair: &Value| {
            format!(
                "{} {}",
                pair[0].as_str().unwrap(),
                pair[1].as_str().unwrap()
            )
        };
        let pairs = expected["model"]["merges"].as_array().unwrap();
        assert_eq!(
            merges,
            &pairs
                .iter()
                .map(|pair| Value::from(merge(pair)))
                .collect::<Vec<_>>()
        );
        assert_eq!(found["added_tokens"], expected["added_tokens"]);
    }
}

#[test]
fn hard_texts_match_python_and_round_trip() {
    for (name, cases) in golden() {
        let tokenizer = trained(&name);
        for case in cases {
            let ids = tokenizer.encode(&case.text).unwrap();
            assert_eq!(ids, case.ids, "{name} {:?}", case.text);
            assert_eq!(tokenizer.decode(&ids).unwrap(), case.text);
        }
    }
}
