//! The loop of a client: it reads and compares answers, disconnects early, or sends malformed requests.

use emberlm_system::random::SplitMix64;
use std::{io, thread, time::Duration};

use super::{Shared, cases, cases::Answer};
use crate::served::events::Events;

/// The pause between two malformed requests.
const MALFORMED_PAUSE: Duration = Duration::from_millis(20);

/// A client of the storm.
#[derive(Debug)]
pub struct Client {
    behaviour: Behaviour,
    random: SplitMix64,
    /// The index of the next malformed request. The kinds are sent in turn.
    next: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Behaviour {
    /// Reads complete answers.
    ReadsAll,
    /// Disconnects within an answer.
    Leaves,
    /// Sends malformed requests.
    SendsMalformed,
}

impl Client {
    /// Creates client `number`. Every second client disconnects early, and a tenth of all send malformed
    /// requests.
    pub fn new(number: usize, seed: u64) -> Self {
        let behaviour = match number % 10 {
            number if number % 2 == 0 => Behaviour::Leaves,
            1 => Behaviour::SendsMalformed,
            _ => Behaviour::ReadsAll,
        };
        let random = SplitMix64::stream(seed, number as u64);
        Self {
            behaviour,
            random,
            next: number,
        }
    }

    /// Runs until the storm is over.
    pub fn run(mut self, shared: &Shared<'_>) {
        while !shared.is_over() {
            match self.behaviour {
                Behaviour::ReadsAll => self.whole(shared),
                Behaviour::Leaves => self.leaves(shared),
                Behaviour::SendsMalformed => self.send_malformed(shared),
            }
        }
    }

    fn whole(&mut self, shared: &Shared<'_>) {
        let case = &shared.cases[self.random.index(shared.cases.len())];
        let stream = self.random.index(2) == 0;
        let how = if stream { "streamed" } else { "whole" };
        let asked = cases::ask(shared.server, &case.body(stream));
        let answer = asked.and_then(|reply| match stream {
            true => Answer::streamed(reply.body),
            false => Answer::whole(&reply.text()?),
        });
        let compared = match answer {
            Ok(answer) => case.compare(&answer, how),
            Err(error) => Err(format!("{how}: {error}")),
        };
        shared.record(|report| match compared {
            Ok(()) => report.compared += 1,
            Err(wrong) => report.failed(wrong),
        });
    }

    fn leaves(&mut self, shared: &Shared<'_>) {
        let case = &shared.cases[self.random.index(shared.cases.len())];
        let left = match self.random.index(4) {
            // Disconnects without reading.
            0 => {
                let stream = self.random.index(2) == 0;
                let after = Duration::from_millis(self.random.below(50));
                cases::ask_and_leave(shared.server, &case.body(stream), after)
            }
            _ => self.leaves_a_stream(shared, case),
        };
        shared.record(|report| match left {
            Ok(()) => report.left += 1,
            Err(error) => report.failed(format!("before leaving: {error}")),
        });
    }

    /// Reads some of the tokens. Closing a socket with unread data resets the connection.
    fn leaves_a_stream(&mut self, shared: &Shared<'_>, case: &cases::Case) -> io::Result<()> {
        let tokens = self.random.index(case.max_tokens());
        let reply = cases::ask(shared.server, &case.body(true))?;
        for event in Events::new(reply.body).take(tokens) {
            event?;
        }
        Ok(())
    }

    fn send_malformed(&mut self, shared: &Shared<'_>) {
        // Rejections are so cheap that without a pause most requests of a storm would be malformed.
        thread::sleep(MALFORMED_PAUSE);
        let kind = &shared.malformed_requests[self.next % shared.malformed_requests.len()];
        self.next += 1;
        let sent = kind.send(shared.server);
        shared.record(|report| match sent {
            Ok(()) => report.refused(kind.name),
            Err(wrong) => report.failed(format!("{}: {wrong}", kind.name)),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_64_leave_and_a_tenth_sends_malformed_requests() {
        let behaviours: Vec<Behaviour> = (0..64)
            .map(|number| Client::new(number, 1).behaviour)
            .collect();
        let count = |wanted| {
            behaviours
                .iter()
                .filter(|behaviour| **behaviour == wanted)
                .count()
        };
        let all = [
            Behaviour::ReadsAll,
            Behaviour::Leaves,
            Behaviour::SendsMalformed,
        ]
        .map(count);
        assert_eq!(all, [25, 32, 7]);
    }
}
