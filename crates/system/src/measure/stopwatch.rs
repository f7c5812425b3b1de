//! Times operations that are too short for one reading of the clock.

use std::time::{Duration, Instant};

/// Times an operation in repetitions that take at least a given time together.
pub struct Stopwatch<'a> {
    /// Runs the operation this many times and waits for the results.
    run: Box<dyn FnMut(usize) + Send + 'a>,
    repeats: usize,
}

impl<'a> Stopwatch<'a> {
    /// A stopwatch for an operation of which `run` makes the given number of repetitions. Two runs before the first
    /// measurement warm it up and estimate its duration.
    pub fn new(at_least: Duration, run: impl FnMut(usize) + Send + 'a) -> Self {
        let mut this = Self {
            run: Box::new(run),
            repeats: 1,
        };
        this.seconds();
        let once = this.seconds().max(1e-8);
        this.repeats = (at_least.as_secs_f64() / once).ceil() as usize;
        this
    }

    /// The mean seconds of a repetition, measured once.
    pub fn seconds(&mut self) -> f64 {
        let started = Instant::now();
        (self.run)(self.repeats);
        started.elapsed().as_secs_f64() / self.repeats as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_operations_are_repeated() {
        let mut made = Vec::new();
        let mut stopwatch = Stopwatch::new(Duration::from_millis(20), |repeats| {
            made.push(repeats);
            std::thread::sleep(Duration::from_millis(2) * repeats as u32);
        });
        let seconds = stopwatch.seconds();
        assert!(seconds >= 2e-3, "{seconds}");
        drop(stopwatch);
        assert_eq!(made[..2], [1, 1]);
        assert!((1..=10).contains(&made[2]), "{made:?}");
    }
}
