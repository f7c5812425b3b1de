//! Cached sequences in another engine.

use emberlm_generate::{CachedSequence, Request, SamplerConfig};

use super::{MODELS, engine, greedy, run};

const PROMPT: [u32; 9] = [3, 14, 1, 5, 9, 2, 6, 5, 3];

fn saved(model: &str) -> (Vec<CachedSequence>, Vec<u32>) {
    let mut engine = engine(model, 2, 64);
    let tokens = run(&mut engine, &sampled()).tokens;
    (engine.cached_sequences().collect(), tokens)
}

fn sampled() -> Request {
    Request {
        chooser: SamplerConfig {
            seed: 5,
            ..SamplerConfig::default()
        }
        .into(),
        ..greedy(&PROMPT, 6)
    }
}

#[test]
fn a_restored_sequence_is_reused_with_the_same_tokens() {
    for model in MODELS {
        let (sequences, tokens) = saved(model);
        if model == "linear attention" {
            assert!(sequences.is_empty());
            continue;
        }
        let mut restored = engine(model, 2, 64);
        for sequence in sequences {
            assert_eq!(
                sequence.tokens,
                [&PROMPT[..], &tokens[..5]].concat(),
                "{model}"
            );
            assert!(restored.restore_sequence(sequence), "{model}");
        }
        let found = run(&mut restored, &sampled());
        assert_eq!(found.tokens, tokens, "{model}");
        assert_eq!(found.ended().reused_prompt, PROMPT.len() - 1, "{model}");
    }
}

#[test]
fn a_sequence_that_begins_another_is_not_saved() {
    let mut engine = engine("pocket-tales", 3, 64);
    let first = run(&mut engine, &greedy(&PROMPT[..4], 2));
    let other = run(&mut engine, &greedy(&[7, 8], 2));
    let longer = [&PROMPT[..4], &first.tokens].concat();
    run(&mut engine, &greedy(&longer, 2));
    let saved: Vec<Vec<u32>> = engine.cached_sequences().map(|it| it.tokens).collect();
    assert_eq!(saved.len(), 2, "{saved:?}");
    assert_eq!(saved[0], [&[7, 8], &other.tokens[..1]].concat());
    assert!(saved[1].starts_with(&longer));
}

#[test]
fn a_sequence_of_another_model_is_refused() {
    let (sequences, _) = saved("pocket-tales");
    let sequence = &sequences[0];
    for other in ["q8 cache", "f16 cache", "linear attention"] {
        assert!(
            !engine(other, 2, 64).restore_sequence(sequence.clone()),
            "{other}"
        );
    }
    let changes: [fn(&mut CachedSequence); 5] = [
        |it| it.tokens[0] = 23,
        |it| it.adapter = Some(0),
        |it| it.chunked = 1000,
        |it| it.tokens.truncate(3),
        |it| it.cache.tensors.truncate(3),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut sequence = sequence.clone();
        change(&mut sequence);
        let mut engine = engine("pocket-tales", 2, 64);
        assert!(!engine.restore_sequence(sequence), "change {number}");
        // The cache is as before.
        assert_eq!(run(&mut engine, &sampled()).ended().reused_prompt, 0);
    }
    // A slot that has been used keeps its sequence.
    let mut engine = engine("pocket-tales", 1, 64);
    run(&mut engine, &greedy(&[7, 8], 2));
    assert!(!engine.restore_sequence(sequence.clone()));
}
