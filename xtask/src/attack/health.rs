//! Requests to `/health` during an attack, whose times show if the server still reacts.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::AttackRun;

/// The pause between two requests.
const PAUSE: Duration = Duration::from_millis(10);

/// Sends requests until the attack is over.
pub fn run(attack_run: &AttackRun<'_>) {
    while !attack_run.is_over() {
        let start = Instant::now();
        let answer = attack_run.server.get("/health");
        let took = start.elapsed();
        attack_run.note(|round| match answer {
            Ok(_) => round.health(took),
            Err(error) => round.failed(error.to_string()),
        });
        thread::sleep(PAUSE);
    }
}
