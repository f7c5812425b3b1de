//! Compares the byte-pair tokenizers with Python's `tiktoken`, whose ids of hard texts were recorded by
//! `fixtures/make.py`.

use std::collections::BTreeMap;

use emberlm_tokenizer::{Tokenizer, TokenizerKind};
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    vocab_size: BTreeMap<TokenizerKind, usize>,
    end_of_text: BTreeMap<TokenizerKind, u32>,
    cases: Vec<Case>,
    runs: Vec<Run>,
}

/// A long run of a repeated piece. Its ids are summarized by their count, the first and last ones, and a
/// checksum.
#[derive(Deserialize)]
struct Run {
    before: String,
    piece: String,
    times: usize,
    after: String,
    #[serde(flatten)]
    ids: BTreeMap<TokenizerKind, Digest>,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Digest {
    count: usize,
    first: Vec<u32>,
    last: Vec<u32>,
    /// The sum of each id times its 1-based position, modulo 2^61.
    weighted_sum: u64,
}

impl Digest {
    fn of(ids: &[u32]) -> Self {
        let weighted = ids
            .iter()
            .zip(1..)
            .map(|(&id, at): (_, u64)| u64::from(id) * at);
        Self {
            count: ids.len(),
            first: ids[..4].to_vec(),
            last: ids[ids.len() - 4..].to_vec(),
            weighted_sum: weighted.sum::<u64>() % (1 << 61),
        }
    }
}

#[derive(Deserialize)]
struct Case {
    text: String,
    #[serde(flatten)]
    ids: BTreeMap<TokenizerKind, Vec<u32>>,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("fixtures/golden.json")).unwrap()
}

const BPE: [TokenizerKind; 4] = [
    TokenizerKind::Gpt2,
    TokenizerKind::P50k,
    TokenizerKind::Cl100k,
    TokenizerKind::O200k,
];

#[test]
fn hard_texts_are_encoded_like_tiktoken() {
    let golden = golden();
    assert!(golden.cases.len() >= 20);
    for kind in BPE {
        let tokenizer = Tokenizer::builtin(kind).unwrap();
        for case in &golden.cases {
            let ids = tokenizer.encode(&case.text).unwrap();
            assert_eq!(ids, case.ids[&kind], "{kind}: {:?}", case.text);
        }
    }
}

#[test]
fn long_runs_are_encoded_like_tiktoken() {
    let golden = golden();
    assert!(golden.runs.len() >= 8);
    for kind in BPE {
        let tokenizer = Tokenizer::builtin(kind).unwrap();
        for run in &golden.runs {
            let text = [
                run.before.as_str(),
                &run.piece.repeat(run.times),
                &run.after,
            ]
            .concat();
            let ids = tokenizer.encode(&text).unwrap();
            assert_eq!(Digest::of(&ids), run.ids[&kind], "{kind} {:?}", run.piece);
            assert_eq!(tokenizer.decode(&ids).unwrap(), text);
        }
    }
}

#[test]
fn hard_texts_round_trip() {
    for kind in BPE {
        let tokenizer = Tokenizer::builtin(kind).unwrap();
        for case in golden().cases {
            assert_eq!(tokenizer.decode(&case.ids[&kind]).unwrap(), case.text);
            let mut stream = tokenizer.stream();
            let mut text = String::new();
            for &id in &case.ids[&kind] {
                text += &stream.push(id).unwrap();
            }
            assert_eq!(text + &stream.finish(), case.text);
        }
    }
}

#[test]
fn sizes_and_end_of_text_match_tiktoken() {
    let golden = golden();
    for kind in BPE {
        let tokenizer = Tokenizer::builtin(kind).unwrap();
        assert_eq!(tokenizer.vocab_size(), golden.vocab_size[&kind], "{kind}");
        assert_eq!(tokenizer.end_of_text(), Some(golden.end_of_text[&kind]));
    }
}
