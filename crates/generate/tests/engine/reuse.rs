//! Prompt processing is shared between samples, and with slots whose cache holds a prefix.

use emberlm_generate::{Request, SamplerConfig};

use super::{EventLog, MODELS, decoder, drain, engine, greedy, plain, run, step};

const PROMPT: [u32; 9] = [3, 14, 1, 5, 9, 2, 6, 5, 3];

#[test]
fn samples_share_the_prompt_s_prefill() {
    for model in MODELS {
        let request = Request {
            samples: 4,
            chooser: SamplerConfig {
                seed: 5,
                ..SamplerConfig::default()
            }
            .into(),
            ..greedy(&PROMPT, 8)
        };
        let mut engine = engine(model, 5, 4);
        let mut events = EventLog::default();
        let id = engine.submit(request.clone()).unwrap();
        drain(&mut engine, &mut events);
        let made: Vec<_> = (0..4).map(|sample| events.of(id, sample).tokens).collect();
        for (sample, made) in made.iter().enumerate() {
            let expected = plain(&decoder(model, 9), &request, sample);
            assert_eq!(made, &expected.tokens, "{model}: {sample}");
            assert_eq!(made.len(), 8, "{model}: {sample}");
        }
        assert!(
            made.iter().any(|of| *of != made[0]),
            "{model}: samples that are all alike"
        );
        let counts = engine.counts();
        assert_eq!(counts.prefilled_tokens, PROMPT.len() as u64, "{model}");
        // The last token of each sample is not processed.
        assert_eq!(counts.decoded_tokens, 4 * 7, "{model}");
        // 9 tokens in chunks of 4, then the tokens of all four samples in one pass each.
        assert_eq!(counts.passes, 3 + 7, "{model}");
    }
}

#[test]
fn a_continued_conversation_prefills_only_new_tokens() {
    for model in MODELS {
        let mut engine = engine(model, 3, 64);
        let first = run(&mut engine, &greedy(&PROMPT, 4));
        assert_eq!(first.ended().reused_prompt, 0);
        let next = [&PROMPT[..], &first.tokens, &[7, 8]].concat();
        let request = greedy(&next, 4);
        let second = run(&mut engine, &request);
        // The last generated token is not in the cache.
        let held = PROMPT.len() + 3;
        assert_eq!(second.ended().reused_prompt, held, "{model}");
        let counts = engine.counts();
        assert_eq!(counts.reused_tokens, held as u64, "{model}");
        let read = PROMPT.len() + next.len() - held;
        assert_eq!(counts.prefilled_tokens, read as u64, "{model}");
        let expected = plain(&decoder(model, 9), &request, 0);
        assert_eq!(second.tokens, expected.tokens, "{model}");
    }
}

#[test]
fn a_repeated_prompt_prefills_only_its_last_token() {
    for model in MODELS {
        let mut engine = engine(model, 3, 64);
        let request = greedy(&PROMPT, 6);
        let first = run(&mut engine, &request);
        let again = run(&mut engine, &request);
        assert_eq!(first.tokens, again.tokens, "{model}");
        // The sums of linear attention include the tokens generated after the prompt and cannot be rewound.
        let reused = match model {
            "linear attention" => 0,
            _ => PROMPT.len() - 1,
        };
        assert_eq!(again.ended().reused_prompt, reused, "{model}");
    }
}

#[test]
fn a_running_sequence_shares_its_prefix() {
    for model in ["pocket-tales", "char-nano", "with a window", "8 bits"] {
        let mut engine = engine(model, 2, 64);
        let mut events = EventLog::default();
        let first = greedy(&PROMPT, 10);
        let first_id = engine.submit(first.clone()).unwrap();
        step(&mut engine, &mut events);
        step(&mut engine, &mut events);
        let second = greedy(&[&PROMPT[..7], &[11, 12]].concat(), 10);
        let second_id = engine.submit(second.clone()).unwrap();
        drain(&mut engine, &mut events);
        for (id, request, reused) in [(first_id, first, 0), (second_id, second, 7)] {
            let recorded = events.of(id, 0);
            let expected = plain(&decoder(model, 9), &request, 0);
            assert_eq!(recorded.tokens, expected.tokens, "{model}");
            assert_eq!(recorded.ended().reused_prompt, reused, "{model}");
        }
    }
}

#[test]
fn a_free_slot_s_cache_survives_a_request_with_a_short_common_prefix() {
    let mut engine = engine("pocket-tales", 2, 64);
    let long = greedy(&PROMPT, 8);
    run(&mut engine, &long);
    let other = greedy(&[&PROMPT[..2], &[20, 21, 22]].concat(), 2);
    assert_eq!(run(&mut engine, &other).ended().reused_prompt, 2);
    // Both caches are still available.
    let again = run(&mut engine, &long);
    assert_eq!(again.ended().reused_prompt, PROMPT.len() - 1);
    assert_eq!(run(&mut engine, &other).ended().reused_prompt, 4);
}

#[test]
fn the_least_recently_released_slot_is_evicted() {
    let mut engine = engine("char-nano", 2, 64);
    let [a, b, c] = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]].map(|p| greedy(&p, 2));
    for request in [&a, &b, &c] {
        assert_eq!(run(&mut engine, request).ended().reused_prompt, 0);
    }
    // `c` replaced `a`.
    assert_eq!(run(&mut engine, &b).ended().reused_prompt, 3);
    assert_eq!(run(&mut engine, &c).ended().reused_prompt, 3);
    assert_eq!(run(&mut engine, &a).ended().reused_prompt, 0);
}
