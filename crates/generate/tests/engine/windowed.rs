//! Sliding-window attention with texts much longer than the window: caches hold only what is still visible.

use std::sync::Arc;

use burn_flex::Flex;
use emberlm_generate::{Drafting, Engine, EngineConfig};
use emberlm_model::config::{AttentionKind, Window};
use emberlm_model::{Transformer, TransformerConfig};

use super::{greedy, plain, raw, run};

const LONG: usize = 1600;

fn decoder() -> Arc<Transformer<Flex>> {
    let mut raw = raw("pocket-tales");
    raw.seq_len = LONG;
    raw.attention = AttentionKind::windowed(Window::new(9));
    Arc::new(
        TransformerConfig::try_from(raw)
            .unwrap()
            .init(9, &Default::default()),
    )
}

fn engine(slots: usize) -> Engine<Flex> {
    let config = EngineConfig {
        slots,
        capacity: LONG,
        prefill_tokens: 64,
        deterministic: false,
        drafting: Drafting::Never,
    };
    Engine::new(decoder(), config).unwrap()
}

fn prompt(len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| i * i % 23).collect()
}

#[test]
fn a_sliding_window_cache_is_smaller_than_the_context() {
    // Keys and values of 2 blocks, 2 key-value heads of 24 / 6 elements of 4 bytes, for the 9 tokens of the
    // window, the 64 that can be rewound, and a block of 512.
    assert_eq!(
        engine(3).cache_bytes(),
        3 * 2 * 2 * 2 * 4 * 4 * (9 + 64 + 512)
    );
}

#[test]
fn a_long_text_matches_plain_generation() {
    let request = greedy(&prompt(700), 600);
    let recorded = run(&mut engine(1), &request);
    assert_eq!(recorded.tokens, plain(&decoder(), &request, 0).tokens);
}

#[test]
fn a_prefix_is_reused_while_its_keys_are_cached() {
    let mut engine = engine(1);
    let first = greedy(&prompt(900), 20);
    let text = [first.prompt.clone(), run(&mut engine, &first).tokens].concat();
    // A continuation.
    let longer = greedy(&text, 20);
    let recorded = run(&mut engine, &longer);
    assert_eq!(recorded.ended().reused_prompt, 919);
    assert_eq!(recorded.tokens, plain(&decoder(), &longer, 0).tokens);
    // Another answer to the same prompt.
    let recorded = run(&mut engine, &first);
    assert_eq!(recorded.ended().reused_prompt, 899);
    assert_eq!(recorded.tokens, text[900..]);
    // An early prefix: the keys visible to its next token are gone.
    let early = greedy(&prompt(100), 20);
    let recorded = run(&mut engine, &early);
    assert_eq!(recorded.ended().reused_prompt, 0);
    assert_eq!(recorded.tokens, plain(&decoder(), &early, 0).tokens);
}
