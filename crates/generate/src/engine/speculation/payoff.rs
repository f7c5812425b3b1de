//! The realized gain of drafts, which pauses them where it is too small.
//!
//! A plan chooses the draft that seems best among many, so it overestimates the gain: the more, the noisier the measured durations.

/// Minimum ratio of the time that plain passes would have taken to the time of the passes with drafts.
const GAIN: f64 = 1.05;
/// Number of passes with drafts that are judged together.
const JUDGED: u32 = 32;
/// Number of passes without drafts after the first such judgement. Each further one doubles it, and each other one halves it.
const PAUSE: u64 = 128;
/// Maximum number of passes without drafts.
const LONGEST_PAUSE: u64 = 8192;
/// One pass of so many has no drafts, to measure the duration of plain passes.
const PLAIN: u64 = 32;

/// The realized gain of drafts.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Payoff {
    passes: u64,
    /// The passes with drafts since the last judgement.
    count: u32,
    /// Their seconds.
    drafted: f64,
    /// The expected seconds of plain passes for their tokens.
    plain: f64,
    /// The number of passes at which drafts are tried again.
    resumes: u64,
    /// The length of the next pause.
    pause: u64,
}

impl Default for Payoff {
    fn default() -> Self {
        Self {
            passes: 0,
            count: 0,
            drafted: 0.0,
            plain: 0.0,
            resumes: 0,
            pause: PAUSE,
        }
    }
}

impl Payoff {
    /// Counts a pass. Returns true if it may have drafts.
    pub(super) fn next_pass(&mut self) -> bool {
        self.passes += 1;
        self.passes >= self.resumes && !self.passes.is_multiple_of(PLAIN)
    }

    /// Records a pass with drafts that took `drafted` seconds, and for whose tokens plain passes take `plain` seconds.
    pub fn record(&mut self, plain: f64, drafted: f64) {
        self.plain += plain;
        self.drafted += drafted;
        self.count += 1;
        if self.count < JUDGED {
            return;
        }
        if self.plain >= self.drafted * GAIN {
            self.pause = (self.pause / 2).max(PAUSE);
        } else {
            self.resumes = self.passes + self.pause;
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
        (self.plain, self.drafted, self.count) = (0.0, 0.0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of `passes` that have drafts, which take `drafted` times as long as plain passes for their tokens.
    fn share(payoff: &mut Payoff, passes: usize, drafted: f64) -> f64 {
        let mut count = 0;
        for _ in 0..passes {
            if payoff.next_pass() {
                payoff.record(1.0, drafted);
                count += 1;
            }
        }
        f64::from(count) / passes as f64
    }

    #[test]
    fn drafts_that_pay_continue() {
        let found = share(&mut Payoff::default(), 3200, 0.8);
        assert!((found - 31.0 / 32.0).abs() < 1e-9, "{found}");
    }

    #[test]
    fn drafts_that_do_not_pay_become_rare_and_return() {
        let mut payoff = Payoff::default();
        share(&mut payoff, 10_000, 1.05);
        let rare = share(&mut payoff, 50_000, 1.05);
        assert!(rare > 0.0 && rare < 0.01, "{rare}");
        share(&mut payoff, 2 * LONGEST_PAUSE as usize, 0.8);
        assert!(share(&mut payoff, 3200, 0.8) > 0.9);
    }
}
