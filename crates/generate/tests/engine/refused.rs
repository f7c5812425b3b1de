//! Requests that cannot run: rejected with a reason, or failed without affecting others.

use std::sync::Arc;

use burn::tensor::Tensor;
use burn_flex::Flex;
use emberlm_generate::{Drafting, Engine, EngineConfig, Overflow, Request};
use emberlm_model::{TransformerConfig, WeightFormat};

use super::{EventLog, SEQ_LEN, VOCAB_SIZE, decoder, drain, engine, greedy, plain, raw, run, step};

#[test]
fn an_invalid_request_is_rejected_without_affecting_others() {
    let mut engine = engine("char-nano", 2, 64);
    let good = greedy(&[3, 14, 1], 10);
    let mut events = EventLog::default();
    let id = engine.submit(good.clone()).unwrap();
    step(&mut engine, &mut events);
    let before = engine.counts();
    let slide = |request| Request {
        overflow: Overflow::Slide,
        ..request
    };
    let mut hot = greedy(&[1], 1);
    hot.chooser.sampler.temperature = f64::NAN;
    for (request, expected) in [
        (
            greedy(&[], 1),
            "no tokens given: the model needs at least one",
        ),
        (
            greedy(&[1, 23], 1),
            "token 23 at position 1 is outside of the vocabulary of 23",
        ),
        // Token ids are checked in the whole prompt, even in a part that would be truncated.
        (
            slide(greedy(&[&[99][..], &[1; SEQ_LEN]].concat(), 1)),
            "token 99 at position 0 is outside of the vocabulary of 23",
        ),
        (
            greedy(&[1; 15], 6),
            "a prompt of 15 tokens and 6 new ones are more than the context of 20",
        ),
        (
            greedy(&[1], usize::MAX),
            "a prompt of 1 tokens and 18446744073709551615 new ones are more than the context of 20",
        ),
        (
            Request {
                samples: 0,
                ..greedy(&[1], 1)
            },
            "samples = 0: must be at least 1",
        ),
        (
            Request {
                stop_tokens: vec![5, 99],
                ..greedy(&[1], 1)
            },
            "stop_tokens = 99: must be below the vocabulary's size of 23",
        ),
        (hot, "temperature = NaN: must be at least 0 and finite"),
    ] {
        assert_eq!(engine.submit(request).unwrap_err().to_string(), expected);
        assert_eq!(engine.counts(), before);
    }
    drain(&mut engine, &mut events);
    let expected = plain(&decoder("char-nano", 9), &good, 0);
    assert_eq!(events.of(id, 0).tokens, expected.tokens);
}

#[test]
fn engine_settings_are_checked() {
    let decoder = decoder("char-nano", 9);
    for (slots, capacity, prefill_tokens, expected) in [
        (0, 20, 1, "slots = 0: must be between 1 and 4096"),
        (5000, 20, 1, "slots = 5000: must be between 1 and 4096"),
        (
            1,
            21,
            1,
            "capacity = 21: must be between 1 and 20, the model's context",
        ),
        (
            1,
            20,
            0,
            "prefill_tokens = 0: must be between 1 and 18446744073709551615",
        ),
    ] {
        let config = EngineConfig {
            slots,
            capacity,
            prefill_tokens,
            deterministic: false,
            drafting: Drafting::Never,
        };
        let error = Engine::new(Arc::clone(&decoder), config).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let config = EngineConfig {
        drafting: Drafting::WhileFaster(65),
        ..EngineConfig::for_model(decoder.config())
    };
    let error = Engine::new(decoder, config).unwrap_err();
    assert_eq!(error.to_string(), "draft_tokens = 65: must be at most 64");
}

#[test]
fn non_finite_logits_fail_only_their_own_request() {
    // Damage the embedding of one token. The head is not tied to it.
    let config = TransformerConfig::try_from(raw("pocket-tales")).unwrap();
    assert!(!config.head().tied);
    let mut decoder = config.init::<Flex>(9, &Default::default());
    decoder.embeddings.tokens = decoder.embeddings.tokens.mapped(|tokens| {
        let width = tokens.dims()[1];
        let damaged = Tensor::full([1, width], f32::NAN, &tokens.device());
        tokens.slice_assign([13..14, 0..width], damaged)
    });
    let decoder = Arc::new(decoder.with_weights(WeightFormat::F32).unwrap());
    let config = EngineConfig {
        slots: 4,
        capacity: SEQ_LEN,
        prefill_tokens: 64,
        deterministic: false,
        drafting: Drafting::Never,
    };
    let mut engine = Engine::new(Arc::clone(&decoder), config).unwrap();
    let good = Request {
        // The prompt must not generate the damaged token.
        stop_tokens: vec![13],
        ..greedy(&[3, 14, 1], 12)
    };
    let bad = Request {
        samples: 2,
        ..greedy(&[3, 14, 13, 5], 12)
    };
    let mut events = EventLog::default();
    let ids = [&good, &bad, &good].map(|request| engine.submit(request.clone()).unwrap());
    drain(&mut engine, &mut events);
    for sample in 0..2 {
        let error = events.of(ids[1], sample).end.unwrap().unwrap_err();
        let error = error.to_string();
        assert!(
            error.starts_with("the model's logit of token 0 is NaN"),
            "{error}"
        );
    }
    // The logits within a prompt count if its log-probabilities are requested.
    let scored = Request {
        prompt_logprobs: Some(1),
        max_new_tokens: 0,
        ..bad.clone()
    };
    let id = engine.submit(scored).unwrap();
    drain(&mut engine, &mut events);
    for sample in 0..2 {
        let recorded = events.of(id, sample);
        assert!(recorded.prompt.is_empty());
        let error = recorded.end.unwrap().unwrap_err().to_string();
        assert!(error.contains("is NaN"), "{error}");
    }
    let expected = plain(&decoder, &good, 0);
    for id in [ids[0], ids[2]] {
        assert_eq!(events.of(id, 0).tokens, expected.tokens);
    }
    // The failed request's cache is not reused as a prefix, unlike that of other requests.
    let reused = engine.counts().reused_tokens;
    let after = run(
        &mut engine,
        &Request {
            prompt: vec![3, 14, 13, 6],
            ..good.clone()
        },
    );
    assert!(after.end.unwrap().is_err());
    assert_eq!(engine.counts().reused_tokens - reused, 2);
    assert_eq!(run(&mut engine, &good).tokens, expected.tokens);
}

#[test]
fn the_largest_id_is_accepted() {
    let last = (VOCAB_SIZE - 1) as u32;
    let recorded = run(&mut engine("char-nano", 1, 4), &greedy(&[last], 3));
    assert_eq!(recorded.tokens.len(), 3);
}
