//! Paused requests keep their slots and their tokens.

use super::{EventLog, MODELS, decoder, drain, engine, greedy, plain, step};

#[test]
fn a_paused_request_keeps_its_slot_and_delays_no_other() {
    for name in MODELS {
        let mut engine = engine(name, 2, 64);
        let (first, second) = (greedy(&[3, 14, 1], 12), greedy(&[5, 2], 9));
        let mut events = EventLog::default();
        let paused = engine.submit(first.clone()).unwrap();
        step(&mut engine, &mut events);
        step(&mut engine, &mut events);
        engine.pause(paused);
        let before = events.of(paused, 0).tokens;
        let other = engine.submit(second.clone()).unwrap();
        while engine.step(&mut |event| events.record(event)) {}
        assert_eq!(
            events.of(other, 0).tokens,
            plain(&decoder(name, 9), &second, 0).tokens
        );
        assert_eq!(events.of(paused, 0).tokens, before);
        let counts = engine.counts();
        assert_eq!(
            (counts.running, counts.paused, counts.free_slots),
            (1, 1, 1)
        );
        assert!(!engine.is_idle());
        engine.resume(paused);
        drain(&mut engine, &mut events);
        assert_eq!(
            events.of(paused, 0).tokens,
            plain(&decoder(name, 9), &first, 0).tokens
        );
    }
}
