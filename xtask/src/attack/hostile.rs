//! One client of an attack.

use emberlm_hostile::{Outcome, has_reason};
use emberlm_system::random::SplitMix64;
use std::{
    io::{self, Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use super::{
    AttackRun, cases,
    kinds::{COMPLETIONS, Means},
    malformed::{Malformed, is_closed},
};
use crate::served::{events::Events, http, process::PATIENCE};

/// The pause between two requests of one client, so that the machine's limit of connections is not the
/// bottleneck.
const PAUSE: Duration = Duration::from_millis(20);
/// The pause between two bytes of a slow client.
const BYTE: Duration = Duration::from_millis(100);
/// Status codes of rejected requests. 500 is an error of the server.
const REFUSALS: [u16; 13] = [
    400, 401, 403, 404, 405, 408, 413, 415, 422, 429, 431, 503, 504,
];

/// The outcome of a request.
pub enum End {
    /// Status 200.
    Answered,
    /// A status of [`REFUSALS`] with a reason.
    Refused,
    /// The connection was closed.
    Closed,
    /// The client read nothing, as the attack intends.
    Unread,
}

impl From<Outcome> for End {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Answered => Self::Answered,
            Outcome::Rejected => Self::Refused,
        }
    }
}

/// Attacks until the round is over.
pub fn run(attack_run: &AttackRun<'_>, number: usize) {
    let mut random = SplitMix64::stream(11, number as u64);
    let mut turn = number;
    while !attack_run.is_over() {
        match &attack_run.attack.means {
            Means::Bodies(bodies) => {
                let (path, body) = &bodies[turn % bodies.len()];
                attack_run.note_end(asked(attack_run, path, body));
            }
            Means::Malformed(kinds) => {
                attack_run.note_end(malformed(attack_run, &kinds[turn % kinds.len()]));
            }
            Means::Storm(kinds) if number.is_multiple_of(5) => {
                attack_run.note_end(malformed(attack_run, &kinds[turn % kinds.len()]));
            }
            Means::Storm(_) => attack_run.note_end(leaves(attack_run, &mut random)),
            Means::Leaves(body) => {
                let after = Duration::from_millis(random.below(200));
                let left = cases::ask_and_leave(attack_run.server, body, after);
                attack_run.note_end(left.map(|()| End::Unread).or_else(closed));
            }
            Means::Unread {
                connections,
                request,
            } => unread(attack_run, *connections, request),
            Means::Described(described) => {
                attack_run.note_end(described.send(attack_run.server).map(End::from));
            }
            Means::Slow => attack_run.note_end(slow(attack_run)),
            Means::Endless => attack_run.note_end(endless(attack_run)),
        }
        turn += 1;
        thread::sleep(PAUSE);
    }
}

impl AttackRun<'_> {
    fn note_end(&self, end: Result<End, String>) {
        self.note(|round| match end {
            Ok(end) => round.ended(&end),
            Err(wrong) => round.failed(wrong),
        });
    }
}

/// Sends a body and reads the whole answer.
fn asked(attack_run: &AttackRun<'_>, path: &str, body: &str) -> Result<End, String> {
    match http::exchange(attack_run.server.address, "POST", path, body.as_bytes()) {
        Ok((200, _)) => Ok(End::Answered),
        Ok((status, text)) if REFUSALS.contains(&status) && has_reason(&text) => Ok(End::Refused),
        Ok((status, text)) => Err(format!("{path}: {status} {}", shortened(&text))),
        Err(error) => closed(error),
    }
}

fn malformed(attack_run: &AttackRun<'_>, kind: &Malformed) -> Result<End, String> {
    let sent = kind.send(attack_run.server);
    sent.map(|()| End::Refused)
        .map_err(|wrong| format!("{}: {wrong}", kind.name))
}

/// Sends the request of a well-behaved client and disconnects, without reading or after some of the tokens. Closing a
/// socket with unread data resets the connection.
fn leaves(attack_run: &AttackRun<'_>, random: &mut SplitMix64) -> Result<End, String> {
    let case = &attack_run.cases[random.index(attack_run.cases.len())];
    let left = if random.index(4) == 0 {
        let body = case.body(random.index(2) == 0).to_string();
        let after = Duration::from_millis(random.below(50));
        cases::ask_and_leave(attack_run.server, &body, after)
    } else {
        let tokens = random.index(case.max_tokens());
        cases::ask(attack_run.server, &case.body(true)).and_then(|reply| {
            let mut events = Events::new(reply.body).take(tokens);
            events.try_for_each(|event| event.map(drop))
        })
    };
    left.map(|()| End::Unread)
        .map_err(|error| format!("before leaving: {error}"))
}

/// Holds connections without reading until the round is over.
fn unread(attack_run: &AttackRun<'_>, connections: usize, request: &str) {
    let mut held = Vec::new();
    for _ in 0..connections {
        let sent = open(attack_run, request);
        attack_run.note_end(match sent {
            Ok(stream) => {
                held.push(stream);
                Ok(End::Unread)
            }
            Err(error) => closed(error),
        });
    }
    while !attack_run.is_over() {
        thread::sleep(BYTE);
    }
}

fn open(attack_run: &AttackRun<'_>, request: &str) -> io::Result<TcpStream> {
    let mut stream = http::connect(attack_run.server.address, PATIENCE)?;
    // A server that has stopped reading blocks the writer.
    stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    let _ = stream.write_all(request.as_bytes());
    Ok(stream)
}

/// Sends one byte at a time until the server answers or closes the connection.
fn slow(attack_run: &AttackRun<'_>) -> Result<End, String> {
    let body = json!({"model": attack_run.server.model, "prompt": "a".repeat(1000)}).to_string();
    let request = http::head("POST", COMPLETIONS, body.len() as u64) + &body;
    let trickled = || -> io::Result<End> {
        let mut stream = http::connect(attack_run.server.address, PATIENCE)?;
        stream.set_read_timeout(Some(BYTE))?;
        for byte in request.as_bytes() {
            if attack_run.is_over() {
                return Ok(End::Unread);
            }
            stream.write_all(&[*byte])?;
            match stream.read(&mut [0; 64]) {
                Ok(0) => return Ok(End::Closed),
                Ok(_) => return Ok(End::Refused),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(End::Answered)
    };
    trickled().or_else(closed)
}

/// Sends chunks until the server rejects them.
fn endless(attack_run: &AttackRun<'_>) -> Result<End, String> {
    let head = http::head("POST", COMPLETIONS, 0)
        .replace("content-length: 0", "transfer-encoding: chunked");
    let chunk = format!("10000\r\n{}\r\n", "[".repeat(1 << 16));
    let start = Instant::now();
    let sent = || -> io::Result<End> {
        let mut stream = http::connect(attack_run.server.address, PATIENCE)?;
        stream.write_all(head.as_bytes())?;
        // Far above any limit on the size of a body.
        for _ in 0..4096 {
            if start.elapsed() > PATIENCE || stream.write_all(chunk.as_bytes()).is_err() {
                break;
            }
        }
        let status = http::reply(stream)?.status;
        match REFUSALS.contains(&status) {
            true => Ok(End::Refused),
            false => Ok(End::Answered),
        }
    };
    sent().or_else(closed)
}

/// Accepts a closed connection as a rejection. A server that is gone or stuck is a failure.
fn closed(error: io::Error) -> Result<End, String> {
    match is_closed(&error) {
        true => Ok(End::Closed),
        false => Err(error.to_string()),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}
