//! Concurrent clients. Each sends its next request as soon as it has received an answer.

use emberlm_system::random::SplitMix64;
use std::{
    io,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    error::Error,
    served::{
        events::Events,
        http,
        process::{PATIENCE, Server},
    },
};

const PATH: &str = "/v1/completions";

/// The settings shared by all levels.
#[derive(Debug)]
pub struct Load<'a> {
    /// The measured server.
    pub server: &'a Server,
    /// The models that clients ask, each the next one; at least one.
    pub models: &'a [String],
    /// The exclusive upper bound of prompt ids.
    pub vocab_size: usize,
    /// Tokens per prompt.
    pub prompt: usize,
    /// Tokens per answer.
    pub tokens: usize,
    /// The sampling temperature.
    pub temperature: f64,
    /// Duration of a level. Running requests are cut off at its end.
    pub lasting: Duration,
    /// Maximum number of requests.
    pub requests: usize,
    /// The seed of the prompts.
    pub seed: u64,
}

/// The result for one number of clients.
#[derive(Clone, Debug, Default)]
pub struct Level {
    /// Completed requests.
    pub requests: usize,
    /// Received tokens.
    pub tokens: usize,
    /// From the first request to the last token.
    pub seconds: f64,
    /// Seconds from each request to its first token.
    pub first: Vec<f64>,
    /// Seconds from each token to the next.
    pub next: Vec<f64>,
}

impl Load<'_> {
    /// Sends one request.
    pub fn warm_up(&self) -> Result<(), Error> {
        let once = Load {
            requests: 1,
            lasting: PATIENCE,
            ..*self
        };
        once.measure(1).map(drop)
    }

    /// Measures with `clients` concurrent clients.
    pub fn measure(&self, clients: usize) -> Result<Level, Error> {
        let asked = AtomicUsize::new(0);
        let start = Instant::now();
        let until = start + self.lasting;
        let results: Vec<io::Result<(Level, Instant)>> = thread::scope(|scope| {
            let started: Vec<_> = (0..clients)
                .map(|number| {
                    let asked = &asked;
                    // Prompts differ between levels, so that the server cannot reuse cached prefixes.
                    let random = SplitMix64::stream(self.seed, (clients << 20 | number) as u64);
                    let model = &self.models[number % self.models.len()];
                    scope.spawn(move || self.client(model, random, asked, until))
                })
                .collect();
            let joined = started.into_iter().map(|client| {
                let panicked = |_| Err(io::Error::other("a client's thread panicked"));
                client.join().unwrap_or_else(panicked)
            });
            joined.collect()
        });
        let mut level = Level::default();
        let mut end = start;
        for result in results {
            let (of_client, last) = result.map_err(|error| Error::Answer {
                command: PATH.to_owned(),
                what: format!("one of {clients} clients"),
                found: error.to_string(),
            })?;
            level.requests += of_client.requests;
            level.tokens += of_client.tokens;
            level.first.extend(of_client.first);
            level.next.extend(of_client.next);
            end = end.max(last);
        }
        level.seconds = end.duration_since(start).as_secs_f64();
        Ok(level)
    }

    /// Runs one client until the time or the requests are used up. Returns the time of its last token.
    fn client(
        &self,
        model: &str,
        mut random: SplitMix64,
        asked: &AtomicUsize,
        until: Instant,
    ) -> io::Result<(Level, Instant)> {
        let mut level = Level::default();
        let mut last = Instant::now();
        while Instant::now() < until && asked.fetch_add(1, Ordering::Relaxed) < self.requests {
            let start = Instant::now();
            let stream = http::connect(self.server.address, PATIENCE)?;
            let body = self.body(model, &mut random).to_string();
            let reply = http::ask(stream, "POST", PATH, body.as_bytes())?;
            if reply.status != 200 {
                let (status, text) = (reply.status, reply.text()?);
                return Err(io::Error::other(format!("{status} {text}")));
            }
            let mut before = None;
            let mut whole = true;
            for event in Events::new(reply.body) {
                let event = event?;
                if event.at > until {
                    whole = false;
                    break;
                }
                let tokens = tokens(&event.value);
                if tokens == 0 {
                    continue;
                }
                level.tokens += tokens;
                // Tokens that arrive together share the elapsed time.
                let mut next = tokens;
                let passed = event
                    .at
                    .duration_since(before.unwrap_or(start))
                    .as_secs_f64();
                if before.is_none() {
                    level.first.push(passed);
                    next = 0;
                }
                level.next.extend(vec![passed / tokens as f64; next]);
                before = Some(event.at);
                last = event.at;
            }
            level.requests += usize::from(whole);
        }
        Ok((level, last))
    }

    fn body(&self, model: &str, random: &mut SplitMix64) -> Value {
        let ids: Vec<usize> = (0..self.prompt)
            .map(|_| random.index(self.vocab_size))
            .collect();
        json!({
            "model": model,
            "prompt": ids,
            "max_tokens": self.tokens,
            "temperature": self.temperature,
            "seed": random.below(1 << 30),
            "stream": true,
            "return_token_ids": true,
        })
    }
}

/// The number of tokens in an event.
fn tokens(event: &Value) -> usize {
    let choice = &event["choices"][0];
    choice["token_ids"].as_array().map_or(0, Vec::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_counts_by_its_ids() {
        let event = json!({"choices": [{"text": "", "token_ids": [4, 5]}]});
        assert_eq!(tokens(&event), 2);
        assert_eq!(tokens(&json!({"choices": [], "usage": {}})), 0);
    }
}
