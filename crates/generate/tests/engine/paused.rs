//! Requests that are paused keep their slots and their tokens.

use super::{Ears, MODELS, decoder, drain, engine, greedy, plain, step};

#[test]
fn a_paused_request_keeps_its_slot_and_its_tokens_and_delays_nobody() {
    for name in MODELS {
        let mut engine = engine(name, 2, 64);
        let (first, second) = (greedy(&[3, 14, 1], 12), greedy(&[5, 2], 9));
        let mut ears = Ears::default();
        let paused = engine.submit(first.clone()).unwrap();
        step(&mut engine, &mut ears);
        step(&mut engine, &mut ears);
        engine.pause(paused);
        let before = ears.of(paused, 0).tokens;
        let other = engine.submit(second.clone()).unwrap();
        while engine.step(&mut |event| ears.hear(event)) {}
        assert_eq!(
            ears.of(other, 0).tokens,
            plain(&decoder(name, 9), &second, 0).tokens
        );
        assert_eq!(ears.of(paused, 0).tokens, before);
        let counts = engine.counts();
        assert_eq!(
            (counts.running, counts.paused, counts.free_slots),
            (1, 1, 1)
        );
        assert!(!engine.is_idle());
        engine.resume(paused);
        drain(&mut engine, &mut ears);
        assert_eq!(
            ears.of(paused, 0).tokens,
            plain(&decoder(name, 9), &first, 0).tokens
        );
    }
}
