//! Embedding requests that run concurrently with generation.

use std::collections::BTreeMap;

use burn_flex::Flex;
use emberlm_generate::{Engine, EventKind, RequestId, embed};

use super::{EventLog, MODELS, SEQ_LEN, VOCAB_SIZE, decoder, engine, greedy, plain};

fn texts() -> Vec<Vec<u32>> {
    let text = |n: u32| (0..n).map(|i| (i * 7 + n) % VOCAB_SIZE as u32).collect();
    [1, 2, 5, 9, 13, SEQ_LEN as u32].map(text).to_vec()
}

type Embedded = BTreeMap<(RequestId, usize), Vec<f32>>;

fn step(engine: &mut Engine<Flex>, embedded: &mut Embedded, events: &mut EventLog) {
    engine.step(&mut |event| match event.kind {
        EventKind::Embedded(mean) => {
            let before = embedded.insert((event.request, event.sample), mean);
            assert_eq!(before, None);
        }
        _ => events.record(event),
    });
}

#[test]
fn chunked_embeddings_match_a_full_pass() {
    for name in MODELS {
        for (slots, prefill_tokens) in [(1, 3), (3, 4), (8, 64)] {
            let mut engine = engine(name, slots, prefill_tokens);
            let (mut embedded, mut events) = (Embedded::new(), EventLog::default());
            let request = greedy(&[3, 14, 1], 12);
            let generated = engine.submit(request.clone()).unwrap();
            let ids = [0, 1].map(|_| engine.submit_embedding(texts()).unwrap());
            for _ in 0..1000 {
                step(&mut engine, &mut embedded, &mut events);
            }
            assert!(engine.is_idle(), "{:?}", engine.counts());
            let decoder = decoder(name, 9);
            assert_eq!(
                events.of(generated, 0).tokens,
                plain(&decoder, &request, 0).tokens
            );
            for id in ids {
                for (at, text) in texts().iter().enumerate() {
                    let expected = embed(&decoder, text).unwrap();
                    let found = &embedded[&(id, at)];
                    let differs = found
                        .iter()
                        .zip(&expected)
                        .any(|(a, b)| (a - b).abs() > 1e-4);
                    assert!(!differs, "{name}, {text:?}: {found:?} and {expected:?}");
                }
            }
        }
    }
}

#[test]
fn generation_proceeds_during_embedding() {
    let mut engine = engine("char-nano", 2, 4);
    let (mut embedded, mut events) = (Embedded::new(), EventLog::default());
    let many = vec![vec![1; SEQ_LEN]; 50];
    engine.submit_embedding(many).unwrap();
    step(&mut engine, &mut embedded, &mut events);
    let id = engine.submit(greedy(&[1, 2, 3], 10)).unwrap();
    for _ in 0..11 {
        step(&mut engine, &mut embedded, &mut events);
    }
    assert_eq!(events.of(id, 0).tokens.len(), 10);
    assert!(embedded.len() < 10);
}

#[test]
fn a_replaced_decoder_does_not_split_an_embedding_request() {
    let mut engine = engine("pocket-tales", 2, 4);
    let (mut embedded, mut events) = (Embedded::new(), EventLog::default());
    let before = engine.submit_embedding(texts()).unwrap();
    step(&mut engine, &mut embedded, &mut events);
    engine.replace_decoder(decoder("pocket-tales", 10)).unwrap();
    let after = engine.submit_embedding(texts()).unwrap();
    for _ in 0..1000 {
        step(&mut engine, &mut embedded, &mut events);
    }
    assert!(engine.is_idle());
    for (id, seed) in [(before, 9), (after, 10)] {
        for (at, text) in texts().iter().enumerate() {
            let expected = embed(&decoder("pocket-tales", seed), text).unwrap();
            let pairs = embedded[&(id, at)].iter().zip(&expected);
            assert!(
                pairs
                    .map(|(a, b)| (a - b).abs())
                    .all(|difference| difference < 1e-4)
            );
        }
    }
}

#[test]
fn embedding_requests_are_rejected_and_cancelled() {
    let mut engine = engine("char-nano", 2, 4);
    let (mut embedded, mut events) = (Embedded::new(), EventLog::default());
    for (texts, expected) in [
        (vec![], "no tokens given: the model needs at least one"),
        (
            vec![vec![1], vec![]],
            "no tokens given: the model needs at least one",
        ),
        (
            vec![vec![99]],
            "token 99 at position 0 is outside of the vocabulary of 23",
        ),
    ] {
        assert_eq!(
            engine.submit_embedding(texts).unwrap_err().to_string(),
            expected
        );
    }
    assert!(engine.submit_embedding(vec![vec![1; SEQ_LEN + 1]]).is_err());
    let id = engine.submit_embedding(vec![vec![1; SEQ_LEN]; 50]).unwrap();
    step(&mut engine, &mut embedded, &mut events);
    assert!(engine.cancel(id));
    assert!(engine.is_idle());
    step(&mut engine, &mut embedded, &mut events);
    assert!(embedded.is_empty());
    assert_eq!(engine.counts().free_slots, 2);
}
