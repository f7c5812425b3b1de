//! Assignment and lifetime of slots, and waiting requests.

use emberlm_generate::{
    ChooserConfig, Constraint, Finish, Grammar, Overflow, Request, SamplerConfig, Vocabulary,
};

use super::{
    EventLog, MODELS, SEQ_LEN, VOCAB_SIZE, decoder, drain, engine, greedy, plain, run, step,
};

#[test]
fn a_long_prompt_does_not_stall_running_sequences() {
    let mut engine = engine("pocket-tales", 2, 3);
    let mut events = EventLog::default();
    let short = engine.submit(greedy(&[4], 16)).unwrap();
    step(&mut engine, &mut events);
    let prompt: Vec<u32> = (0..13).collect();
    let long = engine.submit(greedy(&prompt, 2)).unwrap();
    // 13 tokens in chunks of 3: the fifth pass processes the last one.
    for pass in 1..=5 {
        assert!(events.of(long, 0).tokens.is_empty());
        step(&mut engine, &mut events);
        assert_eq!(events.of(short, 0).tokens.len(), 1 + pass);
    }
    assert_eq!(events.of(long, 0).tokens.len(), 1);
    drain(&mut engine, &mut events);
}

#[test]
fn requests_get_slots_in_arrival_order() {
    let mut engine = engine("pocket-tales", 3, 64);
    let mut events = EventLog::default();
    let first = engine.submit(greedy(&[4], 4)).unwrap();
    let wide = Request {
        samples: 3,
        ..greedy(&[5], 3)
    };
    let wide = engine.submit(wide).unwrap();
    let last = engine.submit(greedy(&[6], 1)).unwrap();
    for _ in 0..4 {
        // Two slots are free, but an earlier request waits for more.
        step(&mut engine, &mut events);
        let counts = engine.counts();
        let at_work = (counts.running, counts.waiting, counts.free_slots);
        let done = events.of(first, 0).end.is_some();
        assert_eq!(at_work, if done { (0, 2, 3) } else { (1, 2, 2) });
    }
    step(&mut engine, &mut events);
    assert_eq!((engine.counts().running, engine.counts().waiting), (3, 1));
    assert!(events.of(last, 0).end.is_none());
    drain(&mut engine, &mut events);
    for sample in 0..3 {
        assert_eq!(events.of(wide, sample).tokens.len(), 3);
    }
    assert_eq!(events.of(last, 0).tokens.len(), 1);
}

#[test]
fn a_cancelled_request_frees_its_slots_at_once() {
    let mut engine = engine("char-nano", 2, 64);
    let mut events = EventLog::default();
    let [running, waiting, third] = [1, 2, 3].map(|token| {
        let request = Request {
            samples: 2,
            ..greedy(&[token, 7], 10)
        };
        engine.submit(request).unwrap()
    });
    step(&mut engine, &mut events);
    assert!(engine.cancel(running) && engine.cancel(waiting));
    let counts = engine.counts();
    assert_eq!(
        (counts.running, counts.waiting, counts.free_slots),
        (0, 1, 2)
    );
    assert!(!engine.cancel(running), "it was cancelled twice");
    drain(&mut engine, &mut events);
    assert_eq!(events.of(running, 0).tokens.len(), 1);
    assert!(events.of(running, 1).end.is_none() && events.of(waiting, 0).tokens.is_empty());
    assert_eq!(events.of(third, 1).tokens.len(), 10);
    assert!(!engine.cancel(third), "it had come to its end");
}

#[test]
fn the_prefilling_sample_can_be_cancelled() {
    let mut engine = engine("char-nano", 3, 2);
    let mut events = EventLog::default();
    let request = Request {
        samples: 3,
        ..greedy(&[1, 2, 3, 4, 5, 6, 7], 5)
    };
    let id = engine.submit(request.clone()).unwrap();
    step(&mut engine, &mut events);
    assert!(engine.cancel_sample(id, 0) && engine.cancel_sample(id, 1));
    assert_eq!(engine.counts().free_slots, 2);
    assert!(!engine.cancel_sample(id, 1) && !engine.cancel_sample(id, 9));
    drain(&mut engine, &mut events);
    assert!(events.of(id, 0).end.is_none() && events.of(id, 1).end.is_none());
    let expected = plain(&decoder("char-nano", 9), &request, 2);
    assert_eq!(events.of(id, 2).tokens, expected.tokens);
    // Tokens that were processed are not processed again.
    assert_eq!(engine.counts().prefilled_tokens, 7);
}

#[test]
fn a_full_context_slides_if_allowed() {
    for model in MODELS {
        let request = Request {
            overflow: Overflow::Slide,
            ..greedy(&[3, 14, 1], 60)
        };
        let recorded = run(&mut engine(model, 2, 4), &request);
        let expected = plain(&decoder(model, 9), &request, 0);
        assert_eq!(recorded.tokens, expected.tokens, "{model}");
        assert_eq!(recorded.ended().slides, expected.slides, "{model}");
        assert!(expected.slides > 2 && recorded.finish() == Finish::Length);
    }
}

#[test]
fn zero_tokens_can_be_requested() {
    let mut engine = engine("char-nano", 1, 4);
    let recorded = run(&mut engine, &greedy(&[1; SEQ_LEN], 0));
    assert_eq!(
        (recorded.tokens.len(), recorded.finish()),
        (0, Finish::Length)
    );
    assert_eq!(engine.counts().passes, 0);
}

#[test]
fn cache_bytes_matches_the_formula() {
    let mut engine = engine("pocket-tales", 3, 4);
    // Keys and values of 2 blocks, 2 key-value heads of 24 / 6 elements of 4 bytes, for 20 tokens.
    let bytes = 3 * 2 * 2 * 2 * 4 * 4 * SEQ_LEN;
    assert_eq!(engine.cache_bytes(), bytes);
    run(&mut engine, &greedy(&[1, 2, 3], 10));
    assert_eq!(engine.cache_bytes(), bytes);
}

#[test]
fn each_sample_follows_its_own_grammar() {
    // The tokens are letters, starting at `a`.
    let texts = (0..VOCAB_SIZE as u8).map(|id| vec![b'a' + id]).collect();
    let vocabulary = Vocabulary::new(texts, &[]).unwrap();
    let held = |pattern: &str| Request {
        samples: 2,
        chooser: ChooserConfig {
            sampler: SamplerConfig::default(),
            constraint: Some(
                Constraint::new(&vocabulary, Grammar::Regex(pattern.to_owned())).unwrap(),
            ),
            top_logprobs: Some(1),
            ..ChooserConfig::default()
        },
        ..greedy(&[4, 2], 12)
    };
    let requests = [held("ab[c-f]{3}"), held("(no|yes)"), greedy(&[3], 12)];
    let mut engine = engine("pocket-tales", 5, 4);
    let mut events = EventLog::default();
    let ids = requests
        .clone()
        .map(|request| engine.submit(request).unwrap());
    drain(&mut engine, &mut events);
    let decoder = decoder("pocket-tales", 9);
    for (request, id) in requests.iter().zip(ids) {
        for sample in 0..request.samples {
            let recorded = events.of(id, sample);
            let expected = plain(&decoder, request, sample);
            assert_eq!(recorded.tokens, expected.tokens);
            assert_eq!(recorded.finish(), expected.finish);
        }
    }
    let text = |id, sample| -> String {
        let letter = |&token: &u32| char::from(b'a' + token as u8);
        events.of(id, sample).tokens.iter().map(letter).collect()
    };
    for sample in 0..2 {
        let letters = text(ids[0], sample);
        let rest = letters.strip_prefix("ab").unwrap();
        assert!(rest.len() == 3 && rest.chars().all(|c| ('c'..='f').contains(&c)));
        assert!(["no", "yes"].contains(&text(ids[1], sample).as_str()));
        assert_eq!(events.of(ids[0], sample).finish(), Finish::Complete);
    }
    assert_eq!(events.of(ids[2], 0).finish(), Finish::Length);
}

#[test]
fn excess_samples_alternate_with_other_requests() {
    for name in MODELS {
        let mut engine = engine(name, 2, 64);
        let mut events = EventLog::default();
        let many = Request {
            samples: 7,
            chooser: SamplerConfig {
                seed: 3,
                ..SamplerConfig::default()
            }
            .into(),
            ..greedy(&[5, 2, 9], 4)
        };
        let first = engine.submit(many.clone()).unwrap();
        let second = engine.submit(greedy(&[6], 2)).unwrap();
        while events.of(second, 0).end.is_none() {
            step(&mut engine, &mut events);
        }
        let ended = (0..7).filter(|&sample| events.of(first, sample).end.is_some());
        assert!(ended.count() < 7, "{name}: one request kept the others out");
        drain(&mut engine, &mut events);
        let decoder = decoder(name, 9);
        for sample in 0..7 {
            let expected = plain(&decoder, &many, sample).tokens;
            assert_eq!(
                events.of(first, sample).tokens,
                expected,
                "{name}: {sample}"
            );
        }
    }
}
