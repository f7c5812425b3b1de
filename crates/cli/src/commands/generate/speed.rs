//! Speed of prompt processing and of generation.

use std::time::{Duration, Instant};

use indicatif::HumanCount;

/// A stopwatch for one answer.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    start: Instant,
    first: Option<Instant>,
    tokens: usize,
}

/// The timing of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Speed {
    /// Number of computed prompt tokens, excluding cached ones.
    pub prompt: usize,
    /// Time to the first token: prompt processing and sampling of that token.
    pub prompt_time: Duration,
    /// Number of generated tokens, including the first one.
    pub tokens: usize,
    /// Time from the first token to the end.
    pub tokens_time: Duration,
}

impl Stopwatch {
    /// Starts the stopwatch, before prompt processing.
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
            first: None,
            tokens: 0,
        }
    }

    /// Records a generated token.
    pub fn token(&mut self) {
        self.first.get_or_insert_with(Instant::now);
        self.tokens += 1;
    }

    /// The timing so far, for a prompt of which `prompt` tokens were computed.
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
    /// Prompt tokens per second. Returns `None` if there is no time to measure.
    pub fn prompt_per_second(&self) -> Option<f64> {
        per_second(self.prompt, self.prompt_time)
    }

    /// Generated tokens per second. The first token counts towards the prompt's time.
    pub fn tokens_per_second(&self) -> Option<f64> {
        per_second(self.tokens.saturating_sub(1), self.tokens_time)
    }

    /// Describes the prompt's speed: "12 tokens in 0.08 s (150.0 tokens/s)".
    pub fn of_prompt(&self) -> String {
        described(self.prompt, self.prompt_per_second(), self.prompt_time)
    }

    /// Describes the speed of generation. The first token is counted but not timed, since it belongs to the
    /// prompt's time.
    pub fn of_tokens(&self) -> String {
        described(self.tokens, self.tokens_per_second(), self.tokens_time)
    }

    /// Adds the timing of another answer.
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

/// Describes `count` tokens in `time` with their speed.
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
    fn the_first_token_counts_towards_the_prompt() {
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
