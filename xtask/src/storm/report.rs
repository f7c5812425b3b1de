//! The report of a storm.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{PRINTED, footprint::Footprint, footprint::Growth};

/// Failures with the same first characters count as the same.
const ALIKE: usize = 40;

/// The counts and failures of a storm.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The duration.
    pub seconds: f64,
    /// Complete answers that equal the answers to a single client.
    pub compared: usize,
    /// Clients that disconnected early.
    pub left: usize,
    /// Malformed requests that were rejected or survived, by kind.
    pub refused: BTreeMap<&'static str, usize>,
    /// Tokens that the server generated in total.
    pub generated: Option<f64>,
    /// Seconds after which no request was running.
    pub quiet_seconds: Option<f64>,
    /// The server's memory, if the operating system reports it.
    pub growth: Option<Growth>,
    /// Open files before and after the storm, if the operating system reports them.
    pub open_files: Option<(usize, usize)>,
    /// Descriptions of the first failures.
    pub failures: Vec<String>,
    /// The number of failures.
    pub failed: usize,
}

impl Report {
    /// Records a failure. A failure like an earlier one is only counted.
    pub fn failed(&mut self, failure: String) {
        self.failed += 1;
        let begins = |text: &str| text.chars().take(ALIKE).collect::<String>();
        let alike = |earlier: &String| begins(earlier) == begins(&failure);
        if self.failures.len() < PRINTED && !self.failures.iter().any(alike) {
            self.failures.push(failure);
        }
    }

    /// Records a malformed request that was rejected or survived.
    pub fn refused(&mut self, kind: &'static str) {
        *self.refused.entry(kind).or_default() += 1;
    }

    /// Records the memory, and a failure if it grew too much.
    pub fn memory(&mut self, footprint: Footprint) {
        self.growth = footprint.growth();
        if let Some(growth) = self.growth.filter(Growth::is_leak) {
            self.failed(format!(
                "the server grew by {:.1} MiB, from {:.1} MiB after a fifth of the time; {:.1} MiB are allowed",
                growth.grown(),
                growth.early,
                growth.allowed
            ));
        }
    }

    /// Compares the number of open files, including connections, before and after.
    pub fn files(&mut self, before: Option<usize>, after: Option<usize>) {
        self.open_files = before.zip(after);
        // The request that reads the number is itself a connection, and another may be about to close.
        if let Some((before, after)) = self
            .open_files
            .filter(|(before, after)| *after > before + 4)
        {
            self.failed(format!(
                "the server holds {after} files open, and held {before}"
            ));
        }
    }

    /// Returns true if there are no failures.
    pub fn is_good(&self) -> bool {
        self.failed == 0 && self.compared > 0 && self.left > 0 && !self.refused.is_empty()
    }

    /// All figures as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "seconds": self.seconds,
            "compared": self.compared,
            "left": self.left,
            "malformed": self.refused.values().sum::<usize>(),
            "malformed_kinds": self.refused,
            "generated_tokens": self.generated,
            "quiet_seconds": self.quiet_seconds,
            "rss_mib": self.growth.map(|growth| json!({
                "early": growth.early,
                "late": growth.late,
                "peak": growth.peak,
                "grown": growth.grown(),
                "allowed": growth.allowed,
            })),
            "open_files": self.open_files,
            "failed": self.failed,
            "failures": self.failures,
        })
    }

    /// All figures as text.
    pub fn to_text(&self) -> String {
        let mut rows = vec![
            ("seconds", format!("{:.1}", self.seconds)),
            ("answers as by itself", self.compared.to_string()),
            ("left in the middle", self.left.to_string()),
            (
                "malformed, refused",
                format!(
                    "{} of {} kinds",
                    self.refused.values().sum::<usize>(),
                    self.refused.len()
                ),
            ),
        ];
        if let Some(tokens) = self.generated {
            rows.push(("tokens made", format!("{tokens:.0}")));
        }
        if let Some(seconds) = self.quiet_seconds {
            rows.push(("all slots free after", format!("{seconds:.2} s")));
        }
        if let Some(growth) = &self.growth {
            let Growth {
                early,
                late,
                peak,
                allowed,
            } = growth;
            let grown = growth.grown();
            let text = format!(
                "{early:.1} → {late:.1} MiB ({grown:+.1}, allowed {allowed:.1}; peak {peak:.1})"
            );
            rows.push(("resident, 20% → end", text));
        }
        if let Some((before, after)) = self.open_files {
            rows.push(("open files", format!("{before} → {after}")));
        }
        rows.push(("failed", self.failed.to_string()));
        let mut text = "| storm | |\n|---|---|\n".to_owned();
        for (name, value) in rows {
            text.push_str(&format!("| {name} | {value} |\n"));
        }
        for failure in &self.failures {
            text.push_str(&format!("FAILED  {failure}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Report {
        let mut report = Report {
            compared: 3,
            left: 2,
            ..Report::default()
        };
        report.refused("no JSON");
        report
    }

    #[test]
    fn a_storm_without_answers_fails() {
        assert!(good().is_good());
        for left_out in [
            Report {
                compared: 0,
                ..good()
            },
            Report { left: 0, ..good() },
            Report {
                refused: BTreeMap::new(),
                ..good()
            },
        ] {
            assert!(!left_out.is_good(), "{left_out:?}");
        }
    }

    #[test]
    fn failures_are_counted_beyond_the_printed_ones() {
        let mut report = good();
        for number in 0..100 {
            report.failed(format!("wrong {number}"));
        }
        assert!(!report.is_good());
        assert_eq!(
            (report.to_json()["failed"].as_u64(), report.failures.len()),
            (Some(100), PRINTED)
        );
        assert!(report.to_text().ends_with("FAILED  wrong 19\n"));
        let mut report = good();
        (0..3).for_each(|_| report.failed("wrong".to_owned()));
        assert_eq!((report.failed, report.failures.len()), (3, 1));
    }

    #[test]
    fn leaked_connections_are_a_failure() {
        let files = |after| {
            let mut report = good();
            report.files(Some(20), Some(after));
            report.is_good()
        };
        assert!(files(21));
        assert!(!files(52));
    }

    #[test]
    fn memory_that_grows_is_a_failure() {
        let mut footprint = Footprint::default();
        (100..200).for_each(|mib| footprint.add(Some(mib << 20)));
        let mut report = good();
        report.memory(footprint);
        assert!(!report.is_good());
        assert!(
            report
                .to_text()
                .contains("| resident, 20% → end | 124.5 → 194.5 MiB (+70.0, ")
        );
    }
}
