//! Drafts: the tokens of plain generation in fewer passes.

use std::sync::Arc;

use burn_flex::Flex;
use emberlm_generate::{
    Constraint, Counts, Drafting, Engine, EventKind, Finish, Grammar, Request, Vocabulary,
};
use emberlm_model::{Transformer, TransformerConfig};

use super::{
    EventLog, SEQ_LEN, VOCAB_SIZE, decoder, drafting_engine, drain, greedy, plain, raw, run,
};

const MODEL: &str = "pocket-tales";

fn engine(drafting: Drafting) -> Engine<Flex> {
    drafting_engine(MODEL, 2, 64, drafting)
}

/// An engine whose draft model has the weights of `seed`; those of the model are seed 9.
fn with_model(tokens: usize, seed: u64) -> Engine<Flex> {
    let engine = engine(Drafting::Always(tokens));
    engine.with_draft_model(decoder(MODEL, seed)).unwrap()
}

/// The tokens of a request by an engine, and its totals.
fn of(mut engine: Engine<Flex>, request: &Request) -> (Vec<u32>, Counts) {
    (run(&mut engine, request).tokens, engine.counts())
}

#[test]
fn a_perfect_draft_is_accepted() {
    let request = greedy(&[3, 14, 1], 16);
    let (tokens, counts) = of(with_model(4, 9), &request);
    assert_eq!(tokens, plain(&decoder(MODEL, 9), &request, 0).tokens);
    // One token after the prompt, and five per pass.
    assert_eq!((counts.passes, counts.made_tokens), (4, 16));
    assert_eq!((counts.drafted_tokens, counts.accepted_tokens), (12, 12));
    // The last token is not read.
    assert_eq!((counts.prefilled_tokens, counts.decoded_tokens), (3, 15));
}

#[test]
fn a_draw_of_a_perfect_draft_is_accepted_too() {
    let mut request = greedy(&[3, 14, 1], 16);
    request.chooser.sampler.temperature = 1.2;
    request.chooser.sampler.seed = 5;
    let (tokens, counts) = of(with_model(4, 9), &request);
    assert_eq!(tokens, plain(&decoder(MODEL, 9), &request, 0).tokens);
    assert_eq!((counts.passes, counts.accepted_tokens), (4, 12));
}

#[test]
fn a_bad_draft_changes_nothing() {
    let request = greedy(&[3, 14, 1], 16);
    let (tokens, counts) = of(with_model(4, 2), &request);
    assert_eq!(tokens, plain(&decoder(MODEL, 9), &request, 0).tokens);
    assert!(counts.accepted_tokens < counts.drafted_tokens / 2);
    assert_eq!(
        counts.passes + counts.accepted_tokens,
        counts.made_tokens,
        "each pass has one token more than it accepts"
    );
}

#[test]
fn a_text_that_repeats_needs_fewer_passes() {
    // The expression admits one text.
    let texts: Vec<Vec<u8>> = (0..VOCAB_SIZE).map(|id| vec![b'a' + id as u8]).collect();
    let vocabulary = Vocabulary::new(texts, &[]).unwrap();
    let grammar = Grammar::Regex("abcd(fcd){4}".to_owned());
    let mut request = greedy(&[7, 8], 18);
    request.chooser.constraint = Some(Constraint::new(&vocabulary, grammar).unwrap());
    request.chooser.top_logprobs = Some(2);
    let mut engine = engine(Drafting::Always(6));
    let recorded = run(&mut engine, &request);
    let expected = [0, 1, 2, 3, 5, 2, 3, 5, 2, 3, 5, 2, 3, 5, 2, 3];
    assert_eq!(recorded.tokens, expected);
    assert_eq!(recorded.finish(), Finish::Complete);
    let counts = engine.counts();
    assert!(counts.accepted_tokens >= 7, "{counts:?}");
    assert!(counts.passes <= 9, "{counts:?}");
}

#[test]
fn a_stop_token_ends_a_draft() {
    let mut request = greedy(&[3, 14, 1], 16);
    request.chooser.sampler.temperature = 1.5;
    let tokens = plain(&decoder(MODEL, 9), &request, 0).tokens;
    // The first token that did not occur before, after the first pass's.
    let at = (2..tokens.len()).find(|&at| !tokens[..at].contains(&tokens[at]));
    let at = at.unwrap();
    let stopped = Request {
        stop_tokens: vec![tokens[at]],
        ..request.clone()
    };
    let mut engine = with_model(8, 9);
    let recorded = run(&mut engine, &stopped);
    assert_eq!(recorded.tokens, tokens[..at]);
    assert_eq!(recorded.finish(), Finish::Stop(tokens[at]));
    // The cache has no token of the rejected draft.
    let longer = greedy(&[&[3, 14, 1], &tokens[..at], &[4]].concat(), 5);
    let recorded = run(&mut engine, &longer);
    assert_eq!(recorded.ended().reused_prompt, 3 + at);
    let expected = plain(&decoder(MODEL, 9), &longer, 0).tokens;
    assert_eq!(recorded.tokens, expected);
}

#[test]
fn the_draft_model_follows_a_slot_to_its_next_request() {
    let mut engine = with_model(3, 9);
    let mut events = EventLog::default();
    let prompts: [&[u32]; 4] = [&[3, 14, 1], &[3, 14, 2, 2, 2], &[3, 14, 1, 9], &[5]];
    let requests = prompts.map(|prompt| Request {
        samples: 2,
        ..greedy(prompt, 12)
    });
    let ids = requests
        .each_ref()
        .map(|request| engine.submit(request.clone()).unwrap());
    drain(&mut engine, &mut events);
    for (request, id) in requests.iter().zip(ids) {
        let expected = plain(&decoder(MODEL, 9), request, 0).tokens;
        for sample in 0..2 {
            assert_eq!(events.of(id, sample).tokens, expected, "{request:?}");
        }
    }
    let counts = engine.counts();
    assert_eq!(counts.accepted_tokens, counts.drafted_tokens);
}

#[test]
fn measured_drafts_change_no_token() {
    for seed in 0..4_u32 {
        let mut request = greedy(&[3, 14, 1, 3, 14, 1, 3], 13);
        request.chooser.sampler.temperature = f64::from(seed) * 0.5;
        request.chooser.sampler.seed = u64::from(seed);
        let (tokens, _) = of(engine(Drafting::WhileFaster(8)), &request);
        assert_eq!(tokens, plain(&decoder(MODEL, 9), &request, 0).tokens);
    }
}

#[test]
fn models_whose_caches_cannot_be_truncated_have_no_drafts() {
    let request = greedy(&[3, 3, 3, 3], 12);
    let engine = drafting_engine("linear attention", 1, 64, Drafting::Always(4));
    assert_eq!(of(engine, &request).1.drafted_tokens, 0);
}

#[test]
fn a_rejected_draft_has_no_events() {
    let mut engine = with_model(6, 2);
    let request = greedy(&[3, 14, 1], 16);
    engine.submit(request).unwrap();
    let mut tokens = 0;
    while engine.step(&mut |event| tokens += usize::from(matches!(event.kind, EventKind::Token(_))))
    {
    }
    assert_eq!(tokens, 16);
    assert!(engine.is_idle());
}

#[test]
fn unsuitable_draft_models_are_refused() {
    let with = |draft: Arc<Transformer<Flex>>| {
        let engine = engine(Drafting::Always(4));
        engine.with_draft_model(draft).unwrap_err().to_string()
    };
    let other = |change: fn(&mut emberlm_model::config::ModelConfig)| {
        let mut raw = raw(MODEL);
        change(&mut raw);
        let config = TransformerConfig::try_from(raw).unwrap();
        Arc::new(config.init::<Flex>(1, &Default::default()))
    };
    assert_eq!(
        with(other(|raw| raw.vocab_size = Some(VOCAB_SIZE + 1))),
        "vocab_size = 24: the draft's must be the model's 23"
    );
    assert_eq!(
        with(other(|raw| raw.seq_len = SEQ_LEN - 1)),
        "seq_len = 19: the draft's context must be at least the engine's 20"
    );
    assert_eq!(
        with(decoder("linear attention", 1)),
        "attention = linear: the draft must support removing tokens from the cache, as softmax attention does"
    );
}

#[test]
fn log_probabilities_do_not_depend_on_measured_times() {
    let mut request = greedy(&[3, 14, 1, 3, 14, 1, 3], 13);
    request.chooser.top_logprobs = Some(0);
    let (_, counts) = of(engine(Drafting::WhileFaster(8)), &request);
    assert_eq!((counts.drafted_tokens, counts.made_tokens), (0, 13));
}
