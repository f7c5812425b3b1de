//! The speed of reading a prompt and of generating tokens.

use std::time::{Duration, Instant};

use indicatif::HumanCount;

/// A clock that runs while an answer is generated.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    start: Instant,
    first: Option<Instant>,
    tokens: usize,
}

/// The time that an answer took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Speed {
    /// Tokens of the prompt that were computed; those that a cache held are not among them.
    pub prompt: usize,
    /// The time to the first token: the pass over the prompt, and the choice of that token.
    pub prompt_time: Duration,
    /// Generated tokens, with the first one.
    pub tokens: usize,
    /// The time from the first token to the end.
    pub tokens_time: Duration,
}

impl Stopwatch {
    /// Begins before the prompt is read.
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
            first: None,
            tokens: 0,
        }
    }

    /// Counts a generated token.
    pub fn token(&mut self) {
        self.first.get_or_insert_with(Instant::now);
        self.tokens += 1;
    }

    /// The speed so far, of an answer to a prompt of which `prompt` tokens were computed.
    pub fn speed(&self, prompt: usize) -> Speed {
        let now = Instant::now();
        let first = self.first.unwrap_or(now);
        Speed {
            prompt,
            prompt_time: first - self.start,
            tokens: self.tokens,
            tokens_time: now - first,
        }
    }
}

impl Speed {
    /// Tokens of the prompt per second; none where there was nothing to time.
    pub fn prompt_per_second(&self) -> Option<f64> {
        per_second(self.prompt, self.prompt_time)
    }

    /// Generated tokens per second. The first token is the prompt's work.
    pub fn tokens_per_second(&self) -> Option<f64> {
        per_second(self.tokens.saturating_sub(1), self.tokens_time)
    }

    /// The prompt's speed: "12 tokens in 0.08 s (150.0 tokens/s)".
    pub fn of_prompt(&self) -> String {
        described(self.prompt, self.prompt_per_second(), self.prompt_time)
    }

    /// The speed of generation. The first token is the prompt's work, so that it is counted and not timed.
    pub fn of_tokens(&self) -> String {
        described(self.tokens, self.tokens_per_second(), self.tokens_time)
    }

    /// Adds the time of another answer.
    pub fn add(&mut self, other: &Self) {
        self.prompt += other.prompt;
        self.prompt_time += other.prompt_time;
        self.tokens += other.tokens;
        self.tokens_time += other.tokens_time;
    }
}

fn per_second(tokens: usize, time: Duration) -> Option<f64> {
    let seconds = time.as_secs_f64();
    (tokens > 0 && seconds > 0.0).then(|| tokens as f64 / seconds)
}

/// `count` tokens in `time`, and their speed.
fn described(count: usize, per_second: Option<f64>, time: Duration) -> String {
    let tokens = HumanCount(count as u64);
    let taken = format!("{tokens} tokens in {:.2} s", time.as_secs_f64());
    match per_second {
        Some(speed) => format!("{taken} ({speed:.1} tokens/s)"),
        None => taken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_token_is_the_prompts_work() {
        let speed = Speed {
            prompt: 1200,
            prompt_time: Duration::from_millis(500),
            tokens: 21,
            tokens_time: Duration::from_secs(2),
        };
        assert_eq!(
            speed.of_prompt(),
            "1,200 tokens in 0.50 s (2400.0 tokens/s)"
        );
        assert_eq!(speed.of_tokens(), "21 tokens in 2.00 s (10.0 tokens/s)");
        let mut total = speed;
        total.add(&speed);
        assert_eq!((total.prompt, total.tokens), (2400, 42));
    }

    #[test]
    fn nothing_generated_has_no_speed() {
        let none = Stopwatch::start().speed(3);
        assert_eq!(none.of_tokens(), "0 tokens in 0.00 s");
    }
}
