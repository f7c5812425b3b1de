//! The engine of encoders: requests share passes and take turns, and each vector is that of the embedder.

use std::fs;

use burn_flex::Flex;
use emberlm_checkpoint::{Embedder, EncoderModel};
use emberlm_generate::{EventKind, RequestId};
use emberlm_model::TransformerConfig;
use emberlm_model::encoder::EncoderSettings;
use emberlm_model::hugging_face::{ExportOptions, export};
use emberlm_serve::worker_engine::{Work, WorkerEngine};
use emberlm_serve::{EmbeddingConfig, EmbeddingEngine};
use emberlm_tokenizer::{EncodedSequence, TOKENIZER_FILE, Tokenizer, TokenizerKind};

/// An encoder of bytes, wide enough for products of different kernels.
fn embedder() -> Embedder<Flex> {
    let settings = EncoderSettings {
        vocab_size: 257,
        positions: 400,
        n_layers: 2,
        ..EncoderSettings::new(128, 4)
    };
    let config = TransformerConfig::try_from(settings).unwrap();
    let device = Default::default();
    let folder = tempfile::tempdir().unwrap();
    let options = ExportOptions::default();
    export(&config.init::<Flex>(4, &device), folder.path(), &options).unwrap();
    let tokenizer = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
    let file = folder.path().join(TOKENIZER_FILE);
    fs::write(file, tokenizer.to_tokenizer_json()).unwrap();
    EncoderModel::open(folder.path())
        .unwrap()
        .embedder(&device)
        .unwrap()
}

fn engine(deterministic: bool) -> EmbeddingEngine<Flex> {
    let config = EmbeddingConfig {
        context: 300,
        deterministic,
    };
    EmbeddingEngine::new(embedder(), config)
}

/// A text of `len` tokens.
fn text(len: usize, seed: usize) -> Vec<u32> {
    (0..len)
        .map(|i| ((i * 31 + seed * 7) % 257) as u32)
        .collect()
}

fn expected(texts: &[Vec<u32>]) -> Vec<Vec<f32>> {
    let sequence = |ids: &Vec<u32>| EncodedSequence {
        segments: vec![0; ids.len()],
        truncated: false,
        ids: ids.clone(),
    };
    let sequences: Vec<_> = texts.iter().map(sequence).collect();
    embedder().embed_sequences(&sequences).unwrap()
}

/// The request and the number of each text, with its vector.
type Embedded = Vec<(RequestId, usize, Vec<f32>)>;

/// Runs a pass. Returns the texts that it embedded.
fn step(engine: &mut EmbeddingEngine<Flex>) -> Embedded {
    let mut embedded = Vec::new();
    let mut started = Vec::new();
    engine.step(&mut |event| match event.kind {
        EventKind::Started => started.push((event.request, event.sample)),
        EventKind::Embedded(vector) => embedded.push((event.request, event.sample, vector)),
        kind => panic!("{kind:?}"),
    });
    let named = embedded.iter().map(|&(request, text, _)| (request, text));
    assert_eq!(started, named.collect::<Vec<_>>());
    embedded
}

fn close(found: &[f32], expected: &[f32]) {
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
    }
}

#[test]
fn requests_share_a_pass() {
    let requests: Vec<Vec<Vec<u32>>> = (0..5)
        .map(|n| vec![text(3 + n * 9, n), text(40 - n, n + 10)])
        .collect();
    let mut shared = engine(false);
    let mut separate = engine(true);
    let submitted = |engine: &mut EmbeddingEngine<Flex>| -> Vec<RequestId> {
        let submit = |texts: &Vec<Vec<u32>>| engine.submit(Work::Embed(texts.clone().into()));
        let ids = requests.iter().map(submit);
        ids.map(Result::unwrap).collect()
    };
    let (ids, separate_ids) = (submitted(&mut shared), submitted(&mut separate));
    assert!(separate_ids.iter().all(|id| !ids.contains(id)));
    let together = step(&mut shared);
    assert_eq!(together.len(), 10);
    assert_eq!(shared.counts().passes, 1);
    assert!(shared.is_idle());
    for (request, number, vector) in together {
        let at = ids.iter().position(|&id| id == request).unwrap();
        close(&vector, &expected(&requests[at])[number]);
    }
    // One pass each, with the embedder's bits.
    for (id, texts) in separate_ids.iter().zip(&requests) {
        let mut found = step(&mut separate);
        found.sort_by_key(|(_, number, _)| *number);
        assert!(found.iter().all(|(request, ..)| request == id));
        let vectors: Vec<_> = found.into_iter().map(|(.., vector)| vector).collect();
        assert_eq!(vectors, expected(texts));
    }
    assert_eq!(separate.counts().passes, 5);
}

#[test]
fn one_request_has_the_bits_of_the_embedder() {
    let texts: Vec<Vec<u32>> = (0..60).map(|n| text(1 + n * 37 % 290, n)).collect();
    let mut engine = engine(false);
    engine.submit(Work::Embed(texts.clone().into())).unwrap();
    let mut vectors = vec![Vec::new(); texts.len()];
    let mut passes = 0;
    while !engine.is_idle() {
        for (_, number, vector) in step(&mut engine) {
            vectors[number] = vector;
        }
        passes += 1;
    }
    assert!(passes > 5, "{passes}");
    assert_eq!(vectors, expected(&texts));
    let counts = engine.counts();
    assert_eq!(counts.passes, passes);
    let tokens: usize = texts.iter().map(Vec::len).sum();
    assert_eq!(counts.prefilled_tokens, tokens as u64);
}

#[test]
fn a_large_request_does_not_keep_others_waiting() {
    let mut engine = engine(false);
    let large = engine
        .submit(Work::Embed(vec![text(100, 1); 100].into()))
        .unwrap();
    let short = engine
        .submit(Work::Embed(vec![text(20, 2)].into()))
        .unwrap();
    let long = engine
        .submit(Work::Embed(vec![text(290, 3)].into()))
        .unwrap();
    let requests = |embedded: Embedded| -> Vec<RequestId> {
        embedded.into_iter().map(|(request, ..)| request).collect()
    };
    // Ten texts of 100 tokens, and the short one fills the pass of 1,024.
    let first = requests(step(&mut engine));
    assert_eq!(first[..10], [large; 10]);
    assert_eq!(first[10..], [short]);
    // Then another request is first.
    let second = requests(step(&mut engine));
    assert_eq!(second[0], long);
    assert_eq!(second[1..], [large; 7]);
    assert_eq!(engine.counts().waiting, 1);
}

#[test]
fn cancelled_texts_are_not_embedded() {
    let mut engine = engine(false);
    let first = engine
        .submit(Work::Embed(vec![text(100, 1); 30].into()))
        .unwrap();
    let second = engine
        .submit(Work::Embed(vec![text(5, 1), text(6, 2)].into()))
        .unwrap();
    engine.cancel_sample(second, 0);
    engine.cancel(first);
    let left = step(&mut engine);
    let left: Vec<_> = left
        .iter()
        .map(|&(request, text, _)| (request, text))
        .collect();
    assert_eq!(left, [(second, 1)]);
    assert!(engine.is_idle());
    let third = engine.submit(Work::Embed(vec![text(5, 1)].into())).unwrap();
    engine.cancel_sample(third, 0);
    assert!(engine.is_idle());
    assert!(!engine.step(&mut |event| panic!("{event:?}")));
}

#[test]
fn invalid_requests_are_refused() {
    let mut engine = engine(false);
    for (work, message) in [
        (Work::Embed(Vec::new().into()), "no tokens given"),
        (
            Work::Embed(vec![text(3, 1), Vec::new()].into()),
            "no tokens given",
        ),
        (
            Work::Embed(vec![text(301, 1)].into()),
            "a prompt of 301 tokens and 0 new ones are more than the context of 300",
        ),
        (
            Work::Embed(vec![vec![1, 257]].into()),
            "token 257 at position 1 is outside of the vocabulary of 257",
        ),
        (
            Work::Generate(Box::default()),
            "model = an encoder: must be a decoder or an encoder–decoder to generate text",
        ),
    ] {
        let error = engine.submit(work).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    assert!(engine.is_idle());
}
