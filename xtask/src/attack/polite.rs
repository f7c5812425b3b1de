//! The well-behaved client: sends requests, reads and compares the complete answers, and retries if the server
//! is busy.

use emberlm_system::random::SplitMix64;
use std::{
    io, thread,
    time::{Duration, Instant},
};

use super::{
    AttackRun,
    cases::{Answer, Case},
    kinds::COMPLETIONS,
};
use crate::served::http;

/// The pause before a retry.
const AGAIN: Duration = Duration::from_millis(200);
/// The pause between two requests.
const PAUSE: Duration = Duration::from_millis(20);
/// The status codes of a busy server.
const BUSY: [u16; 2] = [429, 503];

/// Sends requests until the attack is over.
pub fn run(attack_run: &AttackRun<'_>, number: usize) {
    let mut random = SplitMix64::stream(7, number as u64);
    while !attack_run.is_over() {
        let case = &attack_run.cases[random.index(attack_run.cases.len())];
        let stream = random.index(2) == 0;
        let start = Instant::now();
        let answer = answered(attack_run, case, stream, start);
        let took = start.elapsed();
        attack_run.note(|round| match answer {
            Ok(()) => round.answered(took),
            Err(wrong) => round.failed(format!("after {:.1} s: {wrong}", took.as_secs_f64())),
        });
        thread::sleep(PAUSE);
    }
}

fn answered(
    attack_run: &AttackRun<'_>,
    case: &Case,
    stream: bool,
    start: Instant,
) -> Result<(), String> {
    let body = case.body(stream).to_string();
    loop {
        let left = attack_run.patience.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(format!("the server was busy for {:?}", attack_run.patience));
        }
        let message = |error: io::Error| error.to_string();
        let connection = http::connect(attack_run.server.address, left).map_err(message)?;
        let reply = http::ask(connection, "POST", COMPLETIONS, body.as_bytes()).map_err(message)?;
        if BUSY.contains(&reply.status) {
            thread::sleep(AGAIN);
            continue;
        }
        let status = reply.status;
        if status != 200 {
            return Err(format!("{status} {}", reply.text().map_err(message)?));
        }
        let answer = match stream {
            true => Answer::streamed(reply.body),
            false => reply.text().and_then(|text| Answer::whole(&text)),
        };
        return case.compare(&answer.map_err(message)?, "beside the attack");
    }
}
