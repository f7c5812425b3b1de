//! The measured durations of passes, and the number of draft tokens that raises the throughput most.

use std::time::Duration;

/// Numbers of rows whose passes are measured. A pass with another number counts as one with the next greater number.
const ROWS: [usize; 23] = [
    1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096,
    8192,
];
/// Minimum weight of a new measurement. The durations of equal passes differ by a third on a busy machine.
const NEW: f64 = 0.05;
/// Weight of the first measurement after the ones before it became invalid.
const RENEWED: f64 = 0.3;
/// Factor by which one measurement can exceed the mean. A longer pass was interrupted.
const OUTLIER: f64 = 2.0;
/// Number of passes for which a measurement is valid.
const VALID: u64 = 1024;
/// Minimum probability that a draft token is accepted together with those before it. The numbers of [`ROWS`] are too coarse to
/// weigh less likely ones.
const LEAST_PROBABILITY: f64 = 0.05;
/// The shortest passes, in seconds, that have drafts. Those of a few rows differ by more than drafts can save: threads take as long to
/// hand over work.
const SHORTEST: f64 = 2e-4;
/// Minimum relative increase of the throughput.
const GAIN: f64 = 1.03;

/// The mean durations of recent passes, by their number of rows.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct PassTimes {
    measured: [Option<Measured>; ROWS.len()],
    passes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Measured {
    /// Their mean.
    seconds: f64,
    /// The weight of the last measurement.
    weight: f64,
    /// The number of passes up to the last measurement.
    pass: u64,
}

/// A draft that a sequence may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Offer {
    /// Maximum number of tokens.
    pub most: usize,
    /// The probability that a token is accepted if those before it are.
    pub acceptance: f64,
}

impl PassTimes {
    /// Records a pass.
    pub fn record(&mut self, rows: usize, time: Duration) {
        self.passes += 1;
        let Some(measured) = self.measured.get_mut(place(rows)) else {
            return;
        };
        let seconds = time.as_secs_f64();
        let pass = self.passes;
        *measured = Some(match *measured {
            None => Measured {
                seconds,
                weight: 1.0,
                pass,
            },
            Some(before) => {
                let weight = match pass - before.pass < VALID {
                    // Those of a mean of equal weights, as long as there are few.
                    true => (before.weight / (1.0 + before.weight)).max(NEW),
                    false => RENEWED,
                };
                let limited = seconds.min(before.seconds * OUTLIER);
                Measured {
                    seconds: before.seconds + (limited - before.seconds) * weight,
                    weight,
                    pass,
                }
            }
        });
    }

    /// The expected seconds of a pass: the mean, or without a valid measurement, the time of the next smaller number of rows multiplied by
    /// the root of the growth, which lies between passes that are bound by memory and by computation. `None` without a valid measurement
    /// of at most as many rows.
    pub fn seconds(&self, rows: usize) -> Option<f64> {
        let place = place(rows).min(ROWS.len() - 1);
        let measured = self.measured[..=place].iter().zip(ROWS).rev();
        let mut valid = measured.filter_map(|(measured, rows)| {
            let measured = measured.filter(|of| self.passes - of.pass < VALID)?;
            Some((measured.seconds, rows))
        });
        let (seconds, measured_rows) = valid.next()?;
        let growth = (ROWS[place] as f64 / measured_rows as f64).sqrt();
        Some(seconds * growth)
    }

    /// The number of draft tokens of each offer for the greatest expected throughput of a pass over `sequences` sequences; all 0 if drafts
    /// do not raise it, or nothing is measured yet. `draft_pass` is the time in seconds to draft one token of each sequence.
    ///
    /// A draft token with acceptance probability `a` at place `i` adds `aⁱ` expected tokens and one row.
    pub(super) fn plan(&self, sequences: usize, offers: &[Offer], draft_pass: f64) -> Vec<usize> {
        let mut counts = vec![0; offers.len()];
        let base = match self.seconds(sequences) {
            Some(base) if base >= SHORTEST => base,
            Some(_) | None => return counts,
        };
        let mut gains: Vec<(f64, usize, usize)> = Vec::new();
        for (at, offer) in offers.iter().enumerate() {
            let mut gain = 1.0;
            for place in 1..=offer.most {
                gain *= offer.acceptance;
                if gain < LEAST_PROBABILITY {
                    break;
                }
                gains.push((gain, place, at));
            }
        }
        // Stable: a draft's earlier tokens stay before its later ones.
        gains.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (mut tokens, mut depth, mut chosen) = (sequences as f64, 0, 0);
        let mut best = tokens / base * GAIN;
        for (number, &(gain, place, _)) in gains.iter().enumerate() {
            tokens += gain;
            depth = depth.max(place);
            let seconds = self.seconds(sequences + number + 1).unwrap_or(f64::MAX);
            let throughput = tokens / (seconds + depth as f64 * draft_pass);
            if throughput > best {
                (best, chosen) = (throughput, number + 1);
            }
        }
        for &(_, _, at) in &gains[..chosen] {
            counts[at] += 1;
        }
        counts
    }
}

/// The index of the least number of [`ROWS`] that is not less than `rows`.
fn place(rows: usize) -> usize {
    ROWS.partition_point(|&of| of < rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of a model whose pass takes `base` and `row` milliseconds.
    fn measured(base: f64, row: f64) -> PassTimes {
        let mut times = PassTimes::default();
        for rows in ROWS {
            times.record(
                rows,
                Duration::from_secs_f64((base + row * rows as f64) / 1e3),
            );
        }
        times
    }

    fn offer(most: usize, acceptance: f64) -> Offer {
        Offer { most, acceptance }
    }

    #[test]
    fn likely_drafts_are_long_where_rows_are_cheap() {
        let memory_bound = measured(10.0, 0.1);
        assert_eq!(memory_bound.plan(1, &[offer(8, 0.95)], 0.0), [8]);
        assert_eq!(memory_bound.plan(1, &[offer(3, 0.95)], 0.0), [3]);
        assert_eq!(memory_bound.plan(1, &[offer(8, 0.01)], 0.0), [0]);
        let short = memory_bound.plan(1, &[offer(8, 0.4)], 0.0)[0];
        assert!((1..8).contains(&short), "{short}");
    }

    #[test]
    fn no_draft_pays_where_rows_cost_as_much_as_passes() {
        let bound_by_computation = measured(0.0, 1.0);
        assert_eq!(bound_by_computation.plan(1, &[offer(8, 0.95)], 0.0), [0]);
        assert_eq!(
            bound_by_computation.plan(16, &[offer(8, 0.9); 16], 0.0),
            [0; 16]
        );
    }

    #[test]
    fn tokens_go_to_the_sequences_that_repeat() {
        let counts = measured(10.0, 0.5).plan(2, &[offer(8, 0.01), offer(8, 0.95)], 0.0);
        assert_eq!(counts[0], 0);
        assert!(counts[1] > 4, "{counts:?}");
    }

    #[test]
    fn a_slow_draft_model_does_not_draft() {
        let times = measured(10.0, 0.1);
        assert!(times.plan(1, &[offer(8, 0.8)], 1e-3)[0] > 2);
        assert_eq!(times.plan(1, &[offer(8, 0.8)], 10e-3), [0]);
    }

    #[test]
    fn nothing_is_drafted_before_a_pass_is_measured() {
        assert_eq!(PassTimes::default().plan(1, &[offer(8, 1.0)], 0.0), [0]);
    }

    #[test]
    fn unmeasured_numbers_of_rows_are_extrapolated_and_tried() {
        let mut times = PassTimes::default();
        times.record(1, Duration::from_millis(10));
        assert_eq!(times.seconds(4), Some(0.02));
        assert!(times.plan(1, &[offer(8, 0.95)], 0.0)[0] > 2);
        // A measurement that is slower than expected ends it.
        for rows in [2, 3, 4, 6, 8, 12] {
            times.record(rows, Duration::from_millis(10 * rows as u64));
        }
        assert_eq!(times.plan(1, &[offer(8, 0.95)], 0.0), [0]);
    }

    #[test]
    fn an_interrupted_pass_counts_little() {
        let mut times = measured(10.0, 0.0);
        for _ in 0..3 {
            times.record(1, Duration::from_millis(10));
        }
        times.record(1, Duration::from_secs(5));
        assert!(times.seconds(1).is_some_and(|seconds| seconds < 0.0125));
    }

    #[test]
    fn old_measurements_are_made_again() {
        let mut times = measured(10.0, 10.0);
        for _ in 0..VALID {
            times.record(1, Duration::from_millis(20));
        }
        assert_eq!(times.seconds(4), Some(0.04));
    }
}
