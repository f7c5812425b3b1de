//! Replacing the decoder while requests run and wait.

use std::sync::Arc;

use burn_flex::Flex;
use emberlm_generate::Request;
use emberlm_model::{Transformer, TransformerConfig, WeightFormat};

use super::{EventLog, decoder, drain, engine, greedy, plain, raw, run, step};

#[test]
fn running_requests_keep_the_old_decoder_and_waiting_ones_get_the_new() {
    let (first, second) = (decoder("char-nano", 9), decoder("char-nano", 10));
    let mut engine = engine("char-nano", 2, 64);
    let mut events = EventLog::default();
    let request = greedy(&[3, 14, 1], 12);
    let running = engine.submit(request.clone()).unwrap();
    step(&mut engine, &mut events);
    engine.replace_decoder(Arc::clone(&second)).unwrap();
    let waiting = engine.submit(request.clone()).unwrap();
    drain(&mut engine, &mut events);
    let [on_first, on_second] = [&first, &second].map(|of| plain(of, &request, 0).tokens);
    assert_ne!(on_first, on_second);
    assert_eq!(events.of(running, 0).tokens, on_first);
    let recorded = events.of(waiting, 0);
    assert_eq!(recorded.tokens, on_second);
    assert_eq!(
        recorded.ended().reused_prompt,
        0,
        "what another model has seen"
    );
}

/// A model with a different width and vocabulary.
fn other(vocab_size: usize, seq_len: usize) -> Arc<Transformer<Flex>> {
    let mut raw = raw("char-nano");
    (raw.vocab_size, raw.seq_len, raw.d_model) = (Some(vocab_size), seq_len, 48);
    let config = TransformerConfig::try_from(raw).unwrap();
    let decoder = config.init(3, &Default::default());
    Arc::new(decoder.with_weights(WeightFormat::F32).unwrap())
}

#[test]
fn waiting_requests_that_the_new_decoder_cannot_run_fail() {
    let mut engine = engine("char-nano", 1, 64);
    let mut events = EventLog::default();
    let [running, bad, good] = [7, 22, 4].map(|token| engine.submit(greedy(&[token], 3)).unwrap());
    let mut biased = greedy(&[5], 3);
    biased.chooser.logit_bias = vec![(21, 1.0)];
    let biased = engine.submit(biased).unwrap();
    step(&mut engine, &mut events);
    let second = other(20, 30);
    engine.replace_decoder(Arc::clone(&second)).unwrap();
    let error = engine.submit(greedy(&[21], 1)).unwrap_err().to_string();
    assert_eq!(
        error,
        "token 21 at position 0 is outside of the vocabulary of 20"
    );
    drain(&mut engine, &mut events);
    assert_eq!(events.of(running, 0).tokens.len(), 3);
    let error = events.of(bad, 0).end.unwrap().unwrap_err().to_string();
    assert_eq!(
        error,
        "token 22 at position 0 is outside of the vocabulary of 20"
    );
    let error = events.of(biased, 0).end.unwrap().unwrap_err().to_string();
    assert_eq!(
        error,
        "logit_bias = 21=1: the id must be below the vocabulary's size of 20"
    );
    let expected = plain(&second, &greedy(&[4], 3), 0);
    assert_eq!(events.of(good, 0).tokens, expected.tokens);
}

#[test]
fn an_idle_engine_switches_at_once_and_rejects_a_short_context() {
    let mut engine = engine("char-nano", 1, 64);
    let error = engine.replace_decoder(other(20, 10)).unwrap_err();
    let expected = "capacity = 20: must be between 1 and 10, the model's context";
    assert_eq!(error.to_string(), expected);
    let second = other(20, 20);
    engine.replace_decoder(Arc::clone(&second)).unwrap();
    let current = engine.model().decoder().unwrap();
    assert!(Arc::ptr_eq(current, &second));
    let request = greedy(&[4, 5], 6);
    assert_eq!(
        run(&mut engine, &request).tokens,
        plain(&second, &request, 0).tokens
    );
}

#[test]
fn waiting_samples_run_on_the_decoder_of_their_request() {
    let (first, second) = (decoder("char-nano", 9), decoder("char-nano", 10));
    let mut engine = engine("char-nano", 2, 64);
    let mut events = EventLog::default();
    let many = Request {
        samples: 5,
        ..greedy(&[3, 14, 1], 12)
    };
    let running = engine.submit(many.clone()).unwrap();
    step(&mut engine, &mut events);
    engine.replace_decoder(Arc::clone(&second)).unwrap();
    let waiting = engine.submit(greedy(&[3, 14, 1], 12)).unwrap();
    drain(&mut engine, &mut events);
    for sample in 0..5 {
        let expected = plain(&first, &many, sample).tokens;
        assert_eq!(events.of(running, sample).tokens, expected);
    }
    let expected = plain(&second, &many, 0).tokens;
    assert_eq!(events.of(waiting, 0).tokens, expected);
}
