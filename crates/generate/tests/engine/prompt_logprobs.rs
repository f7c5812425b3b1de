//! Log-probabilities of prompts: those of the model's own forward pass, independent of other requests.

use std::sync::Arc;

use burn::tensor::{Int, Tensor, TensorData};
use burn_flex::Flex;
use emberlm_generate::{Chosen, Drafting, Engine, EngineConfig, Finish, LogProbs, Request};
use emberlm_model::{Transformer, TransformerConfig};

use super::{EventLog, MODELS, SEQ_LEN, decoder, drain, engine, greedy, plain, raw, run, step};

const PROMPT: [u32; 13] = [3, 14, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7];

fn scored(prompt: &[u32], max_new_tokens: usize) -> Request {
    Request {
        prompt_logprobs: Some(2),
        ..greedy(prompt, max_new_tokens)
    }
}

/// The tokens of a prompt by one pass over all of them.
fn expected(decoder: &Transformer<Flex>, prompt: &[u32]) -> Vec<Chosen> {
    let ids: Vec<i64> = prompt.iter().map(|&id| i64::from(id)).collect();
    let ids = TensorData::new(ids, [1, prompt.len()]);
    let ids = Tensor::<Flex, 2, Int>::from_data(ids, &decoder.device());
    let logits = decoder.forward(ids); // [1, tokens, vocab_size]
    let width = logits.dims()[2];
    let logits: Vec<f32> = logits.into_data().to_vec().unwrap();
    let first = Chosen {
        id: prompt[0],
        ..Chosen::default()
    };
    let rows = logits.chunks_exact(width).zip(&prompt[1..]);
    let others = rows.map(|(row, &id)| {
        let logprobs = LogProbs::new(row);
        Chosen {
            id,
            logprob: logprobs.of(id),
            alternatives: logprobs.likeliest(2),
        }
    });
    std::iter::once(first).chain(others).collect()
}

#[track_caller]
fn close(found: &[Chosen], expected: &[Chosen], tolerance: f32) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.id, expected.id);
        let pairs = found.logprob.iter().zip(&expected.logprob);
        let alternatives = found.alternatives.iter().zip(&expected.alternatives);
        let alternatives = alternatives.map(|((_, found), (_, expected))| (found, expected));
        for (found, expected) in pairs.chain(alternatives) {
            assert!(
                (found - expected).abs() < tolerance,
                "{found}, not {expected}"
            );
        }
        assert_eq!(found.logprob.is_some(), expected.logprob.is_some());
        assert_eq!(found.alternatives.len(), expected.alternatives.len());
    }
}

/// A cache in 8 bits changes them.
fn tolerance(model: &str) -> f32 {
    match model {
        "q8 cache" => 0.2,
        "f16 cache" => 0.02,
        _ => 1e-4,
    }
}

#[test]
fn they_are_those_of_the_forward_pass_in_any_chunks() {
    for model in MODELS {
        let decoder = decoder(model, 9);
        let expected = expected(&decoder, &PROMPT);
        for prefill_tokens in [1, 4, 64] {
            let mut engine = engine(model, 3, prefill_tokens);
            let request = scored(&PROMPT, 4);
            let recorded = run(&mut engine, &request);
            close(&recorded.prompt, &expected, tolerance(model));
            let plain = plain(&decoder, &request, 0);
            assert_eq!(recorded.tokens, plain.tokens, "{model}");
        }
    }
}

/// An evaluation asks for the log-probabilities of prompts that begin alike, with or without a token after them.
#[test]
fn a_cached_prompt_is_read_again_and_stays_usable() {
    let mut engine = engine("pocket-tales", 2, 64);
    let expected = expected(&decoder("pocket-tales", 9), &PROMPT);
    run(&mut engine, &greedy(&PROMPT, 3));
    for max_new_tokens in [0, 1, 3] {
        let recorded = run(&mut engine, &scored(&PROMPT, max_new_tokens));
        close(&recorded.prompt, &expected, 1e-4);
        assert_eq!(recorded.tokens.len(), max_new_tokens);
        assert_eq!(recorded.finish(), Finish::Length);
        assert_eq!(recorded.ended().reused_prompt, 0);
    }
    // Others reuse the cache of such a request.
    let again = run(&mut engine, &greedy(&PROMPT, 3));
    assert_eq!(again.ended().reused_prompt, PROMPT.len() - 1);
}

/// All samples, including those that wait for a slot, begin with the prompt.
#[test]
fn every_sample_begins_with_them() {
    for max_new_tokens in [0, 3] {
        let mut engine = engine("char-nano", 2, 4);
        let mut events = EventLog::default();
        let other = engine.submit(greedy(&[4, 5], 9)).unwrap();
        step(&mut engine, &mut events);
        let request = Request {
            samples: 5,
            ..scored(&PROMPT, max_new_tokens)
        };
        let id = engine.submit(request).unwrap();
        drain(&mut engine, &mut events);
        let expected = expected(&decoder("char-nano", 9), &PROMPT);
        for sample in 0..5 {
            let recorded = events.of(id, sample);
            close(&recorded.prompt, &expected, 1e-4);
            assert_eq!(recorded.tokens.len(), max_new_tokens);
            assert_eq!(recorded.finish(), Finish::Length);
        }
        assert!(events.of(other, 0).prompt.is_empty());
    }
}

#[test]
fn prompts_of_one_token_and_of_the_whole_context_have_them() {
    let one = run(&mut engine("char-nano", 1, 64), &scored(&[7], 0));
    let unpredicted = Chosen {
        id: 7,
        ..Chosen::default()
    };
    assert_eq!(one.prompt, [unpredicted]);
    let full: Vec<u32> = (0..SEQ_LEN as u32).collect();
    let recorded = run(&mut engine("char-nano", 1, 64), &scored(&full, 0));
    close(
        &recorded.prompt,
        &expected(&decoder("char-nano", 9), &full),
        1e-4,
    );
}

/// A pass computes the logits of few tokens of a large vocabulary, however long a prompt is.
#[test]
fn a_pass_has_a_limited_number_of_logits() {
    let mut raw = raw("char-nano");
    (raw.vocab_size, raw.d_model, raw.heads) = (Some(1 << 19), 8, 1);
    raw.n_layers = 1;
    raw.seq_len = 100;
    let config = TransformerConfig::try_from(raw).unwrap();
    let decoder = Arc::new(config.init::<Flex>(9, &Default::default()));
    let config = EngineConfig {
        slots: 2,
        capacity: 100,
        prefill_tokens: 256,
        deterministic: false,
        drafting: Drafting::Never,
    };
    // 64 MiB of f32.
    assert_eq!(config.prompt_logit_rows(1 << 19), 32);
    let mut engine = Engine::new(Arc::clone(&decoder), config).unwrap();
    let mut events = EventLog::default();
    let prompts = [1, 2].map(|step| (0..40).map(|i| i * step).collect::<Vec<u32>>());
    let request = |prompt: &Vec<u32>| scored(prompt, 0);
    let ids = prompts
        .each_ref()
        .map(|prompt| engine.submit(request(prompt)).unwrap());
    drain(&mut engine, &mut events);
    // 80 tokens in passes of 32, 32 and 16.
    assert_eq!(engine.counts().passes, 3);
    for (id, prompt) in ids.into_iter().zip(&prompts) {
        let recorded = events.of(id, 0);
        close(&recorded.prompt, &expected(&decoder, prompt), 1e-4);
    }
}

/// With `deterministic`, other requests change no bit.
#[test]
fn deterministic_log_probabilities_are_bit_identical() {
    let config = EngineConfig {
        slots: 3,
        capacity: SEQ_LEN,
        prefill_tokens: 5,
        deterministic: true,
        drafting: Drafting::Never,
    };
    let decoder = decoder("pocket-tales", 9);
    let engine = || Engine::new(Arc::clone(&decoder), config).unwrap();
    let mut shared = engine();
    let mut events = EventLog::default();
    let prompts = [&PROMPT[..], &PROMPT[..7], &PROMPT[3..], &PROMPT[..]];
    let ids = prompts.map(|prompt| shared.submit(scored(prompt, 2)).unwrap());
    drain(&mut shared, &mut events);
    for (id, prompt) in ids.into_iter().zip(prompts) {
        let separate = run(&mut engine(), &scored(prompt, 2));
        assert_eq!(events.of(id, 0), separate);
    }
}

/// A token that ends a text has its log-probability, too.
#[test]
fn the_stop_token_is_reported() {
    let mut request = scored(&PROMPT, 4);
    request.chooser.top_logprobs = Some(1);
    let first = run(&mut engine("char-nano", 1, 64), &request).tokens[0];
    request.stop_tokens = vec![first];
    let recorded = run(&mut engine("char-nano", 1, 64), &request);
    assert!(recorded.tokens.is_empty());
    assert_eq!(recorded.finish(), Finish::Stop(first));
    let stop = recorded.ended().stop_token.unwrap();
    assert_eq!(stop.alternatives, [(first, stop.logprob.unwrap())]);
}
